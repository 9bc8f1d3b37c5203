"""A sequence-to-sequence model with packed sequences and teacher forcing: it copies its input backwards."""

import random

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(4)
random.seed(4)
PAD, SOS = 0, 1


class Encoder(nn.Module):
    def __init__(self, vocabulary, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden, padding_idx=PAD)
        self.gru = nn.GRU(hidden, hidden, bidirectional=True, batch_first=True)

    def forward(self, tokens, lengths):
        packed = pack_padded_sequence(self.embedding(tokens), lengths, batch_first=True, enforce_sorted=False)
        outputs, hidden = self.gru(packed)
        outputs, _ = pad_packed_sequence(outputs, batch_first=True)
        half = outputs.size(2) // 2
        return outputs[:, :, :half] + outputs[:, :, half:], hidden.sum(0, keepdim=True)


class Decoder(nn.Module):
    def __init__(self, vocabulary, hidden):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, hidden)
        self.gru = nn.GRU(hidden, hidden, batch_first=True)
        self.out = nn.Linear(2 * hidden, vocabulary)

    def forward(self, token, hidden, encoded, mask):
        output, hidden = self.gru(self.embedding(token), hidden)
        scores = torch.bmm(output, encoded.transpose(1, 2)).squeeze(1)
        weights = scores.masked_fill(~mask, float("-inf")).softmax(dim=1)
        context = torch.bmm(weights.unsqueeze(1), encoded)
        return self.out(torch.cat((output, context), dim=2)).squeeze(1), hidden


encoder, decoder = Encoder(8, 24), Decoder(8, 24)
params = list(encoder.parameters()) + list(decoder.parameters())
optimizer = torch.optim.Adam(params, lr=0.02)
criterion = nn.CrossEntropyLoss(ignore_index=PAD)
losses = []
for step in range(40):
    words = [torch.randint(2, 8, (random.randint(2, 5),)) for _ in range(16)]
    lengths = torch.tensor([len(w) for w in words])
    source = pad_sequence(words, batch_first=True, padding_value=PAD)
    target = pad_sequence([w.flip(0) for w in words], batch_first=True, padding_value=PAD)
    mask = torch.arange(source.size(1)).unsqueeze(0) < lengths.unsqueeze(1)
    encoded, hidden = encoder(source, lengths)
    token, loss = torch.full((16, 1), SOS, dtype=torch.long), 0
    teacher_forcing = random.random() < 0.7
    for t in range(target.size(1)):
        logits, hidden = decoder(token, hidden, encoded, mask)
        loss = loss + criterion(logits, target[:, t])
        _, top = logits.topk(1)
        token = target[:, t].unsqueeze(1) if teacher_forcing else top.detach()
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    losses.append(loss.item() / target.size(1))
assert sum(losses[-5:]) / 5 < 0.75 * losses[0], losses
