"""REINFORCE on a two-armed bandit with a state, with torch.distributions."""

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.distributions import Categorical

torch.manual_seed(5)


class Policy(nn.Module):
    def __init__(self):
        super(Policy, self).__init__()
        self.affine1 = nn.Linear(2, 16)
        self.dropout = nn.Dropout(p=0.1)
        self.affine2 = nn.Linear(16, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


policy = Policy()
optimizer = optim.Adam(policy.parameters(), lr=3e-2)
eps = torch.finfo(torch.float32).eps


def select_action(state):
    probs = policy(state.unsqueeze(0))
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode():
    returns = torch.tensor(policy.rewards)
    returns = (returns - returns.mean()) / (returns.std(unbiased=True) + eps)
    policy_loss = []
    for log_prob, R in zip(policy.saved_log_probs, returns):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]


averages = []
for i_episode in range(25):
    total = 0.0
    for t in range(20):
        state = torch.rand(2)
        action = select_action(state)
        reward = 1.0 if action == int((state[0] > state[1]).item()) else 0.0
        policy.rewards.append(reward)
        total += reward
    finish_episode()
    averages.append(total / 20)
assert sum(averages[-5:]) > sum(averages[:5]), averages
