"""Nets in PyTorch, small but built as the real ones are, which make.py exports."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around which the input goes, as in ResNet-18. norm: batch norm; or biases, where it is
    folded into the convolutions."""

    def __init__(self, inside: int, outside: int, stride: int, norm: bool):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=not norm)
        self.bn1 = nn.BatchNorm2d(outside) if norm else nn.Identity()
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=not norm)
        self.bn2 = nn.BatchNorm2d(outside) if norm else nn.Identity()
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or inside != outside:
            conv = nn.Conv2d(inside, outside, 1, stride, bias=not norm)
            self.downsample = nn.Sequential(conv, nn.BatchNorm2d(outside)) if norm else nn.Sequential(conv)

    def forward(self, x: Tensor) -> Tensor:
        """[n, inside, h, w] -> [n, outside, h / stride, w / stride]."""
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) + self.downsample(x))


class ResNet(nn.Module):
    """ResNet-18, where width is 64."""

    def __init__(self, width: int = 64, classes: int = 1000, norm: bool = True):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=not norm)
        self.bn1 = nn.BatchNorm2d(width) if norm else nn.Identity()
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        blocks: list[nn.Module] = []
        inside = width
        for level in range(4):
            for i in range(2):
                stride = 2 if level and not i else 1
                blocks.append(BasicBlock(inside, width << level, stride, norm))
                inside = width << level
        self.layers = nn.Sequential(*blocks)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inside, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, h, w] -> logits."""
        x = self.maxpool(torch.relu(self.bn1(self.conv1(x))))
        return self.fc(torch.flatten(self.avgpool(self.layers(x)), 1))


class SqueezeExcite(nn.Module):
    """Scales channels by what a small net says of their means."""

    def __init__(self, channels: int):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, max(8, channels // 4), 1)
        self.fc2 = nn.Conv2d(max(8, channels // 4), channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Keeps the shape."""
        scale = functional.adaptive_avg_pool2d(x, 1)
        return x * functional.hardsigmoid(self.fc2(torch.relu(self.fc1(scale))))


class InvertedResidual(nn.Module):
    """Expands, convolves each channel by itself, projects."""

    def __init__(self, inside: int, kernel: int, wide: int, outside: int, se: bool, hs: bool, stride: int):
        super().__init__()
        act = nn.Hardswish if hs else nn.ReLU
        parts: list[nn.Module] = []
        if wide != inside:
            parts += [nn.Conv2d(inside, wide, 1, bias=False), nn.BatchNorm2d(wide, eps=0.001), act()]
        parts += [
            nn.Conv2d(wide, wide, kernel, stride, kernel // 2, groups=wide, bias=False),
            nn.BatchNorm2d(wide, eps=0.001),
            act(),
        ]
        if se:
            parts.append(SqueezeExcite(wide))
        parts += [nn.Conv2d(wide, outside, 1, bias=False), nn.BatchNorm2d(outside, eps=0.001)]
        self.block = nn.Sequential(*parts)
        self.around = stride == 1 and inside == outside

    def forward(self, x: Tensor) -> Tensor:
        """[n, inside, h, w] -> [n, outside, h / stride, w / stride]."""
        return x + self.block(x) if self.around else self.block(x)


class MobileNet(nn.Module):
    """MobileNetV3-small with half of its blocks, and its own channels."""

    def __init__(self, classes: int = 100):
        super().__init__()
        stem = [nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16, eps=0.001), nn.Hardswish()]
        blocks = [
            InvertedResidual(16, 3, 16, 16, True, False, 2),
            InvertedResidual(16, 3, 72, 24, False, False, 2),
            InvertedResidual(24, 3, 88, 24, False, False, 1),
            InvertedResidual(24, 5, 96, 40, True, True, 2),
            InvertedResidual(40, 5, 240, 40, True, True, 1),
            InvertedResidual(40, 5, 120, 48, True, True, 1),
        ]
        last = [nn.Conv2d(48, 288, 1, bias=False), nn.BatchNorm2d(288, eps=0.001), nn.Hardswish()]
        self.features = nn.Sequential(*stem, *blocks, *last)
        self.classifier = nn.Sequential(
            nn.Linear(288, 256), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(256, classes)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, h, w] -> logits."""
        return self.classifier(functional.adaptive_avg_pool2d(self.features(x), 1).flatten(1))


class BertLayer(nn.Module):
    """Attention and a feed-forward net, each with layer norm behind it."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.query, self.key, self.value = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.dense, self.norm1 = nn.Linear(d, d), nn.LayerNorm(d, eps=1e-12)
        self.up, self.down, self.norm2 = nn.Linear(d, 4 * d), nn.Linear(4 * d, d), nn.LayerNorm(d, eps=1e-12)
        self.heads = heads

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """[batch, seq, d], and what is added to the scores."""
        batch, seq, d = x.shape
        q, k, v = (
            f(x).view(batch, seq, self.heads, d // self.heads).transpose(1, 2)
            for f in (self.query, self.key, self.value)
        )
        y = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        x = self.norm1(x + self.dense(y.transpose(1, 2).reshape(batch, seq, d)))
        return self.norm2(x + self.down(functional.gelu(self.up(x))))


class Bert(nn.Module):
    """An encoder as BERT's, with its pooler."""

    def __init__(self, d: int = 64, heads: int = 4, layers: int = 2, words: int = 200, longest: int = 64):
        super().__init__()
        self.word_embeddings = nn.Embedding(words, d)
        self.position_embeddings = nn.Embedding(longest, d)
        self.token_type_embeddings = nn.Embedding(2, d)
        self.norm = nn.LayerNorm(d, eps=1e-12)
        self.layers = nn.ModuleList(BertLayer(d, heads) for _ in range(layers))
        self.pooler = nn.Linear(d, d)
        self.register_buffer("position_ids", torch.arange(longest)[None], persistent=False)
        self.position_ids: Tensor

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        """Token numbers and mask [batch, seq] -> hidden states, and the pooled first one."""
        seq = input_ids.shape[1]
        x = self.word_embeddings(input_ids)
        x = x + self.token_type_embeddings(torch.zeros_like(input_ids))
        x = self.norm(x + self.position_embeddings(self.position_ids[:, :seq]))
        mask = (1.0 - attention_mask[:, None, None, :].to(x.dtype)) * torch.finfo(x.dtype).min
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class GptLayer(nn.Module):
    """Attention over what was and what is new, and a feed-forward net."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)
        self.heads = heads

    def forward(self, x: Tensor, mask: Tensor, k0: Tensor, v0: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[batch, new, d] and the cache [batch, heads, past, hd] -> the same, with the cache of both."""
        batch, new, d = x.shape
        parts = self.qkv(self.norm1(x)).split(d, dim=2)
        q, k, v = (p.view(batch, new, self.heads, d // self.heads).transpose(1, 2) for p in parts)
        k, v = torch.cat((k0, k), 2), torch.cat((v0, v), 2)
        scores = q @ k.transpose(2, 3) * (d // self.heads) ** -0.5
        scores = scores.masked_fill(~mask, torch.finfo(x.dtype).min)
        y = (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(batch, new, d)
        x = x + self.proj(y)
        return x + self.down(functional.gelu(self.up(self.norm2(x)), approximate="tanh")), k, v


class Gpt(nn.Module):
    """A decoder of two layers as GPT-2's, which takes and gives its cache."""

    def __init__(self, d: int = 64, heads: int = 4, words: int = 200, longest: int = 64):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(words, d), nn.Embedding(longest, d)
        self.layers = nn.ModuleList(GptLayer(d, heads) for _ in range(2))
        self.norm = nn.LayerNorm(d)
        self.head = nn.Linear(d, words, bias=False)

    def forward(
        self, ids: Tensor, past_k0: Tensor, past_v0: Tensor, past_k1: Tensor, past_v1: Tensor
    ) -> tuple[Tensor, ...]:
        """New tokens [batch, new] and the cache -> logits, and the longer cache."""
        past, new = past_k0.shape[2], ids.shape[1]
        places = torch.arange(past, past + new, device=ids.device)
        mask = torch.arange(past + new, device=ids.device)[None, :] <= places[:, None]
        x = self.wte(ids) + self.wpe(places)
        caches: list[Tensor] = []
        for layer, k, v in zip(self.layers, (past_k0, past_k1), (past_v0, past_v1), strict=True):
            x, k1, v1 = layer(x, mask, k, v)
            caches += [k1, v1]
        return self.head(self.norm(x)), *caches


def _double(inside: int, outside: int) -> nn.Sequential:
    """Two convolutions with batch norm."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
        nn.Conv2d(outside, outside, 3, padding=1, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(),
    )


class UNet(nn.Module):
    """Three levels down and up: two by transposed convolutions, one by bilinear interpolation."""

    def __init__(self, width: int = 8, classes: int = 3):
        super().__init__()
        w = width
        self.enter = _double(3, w)
        self.down1, self.down2, self.down3 = _double(w, 2 * w), _double(2 * w, 4 * w), _double(4 * w, 8 * w)
        self.pool = nn.MaxPool2d(2)
        self.up3, self.join3 = nn.ConvTranspose2d(8 * w, 4 * w, 2, 2), _double(8 * w, 4 * w)
        self.up2, self.join2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, 2), _double(4 * w, 2 * w)
        self.up1, self.join1 = nn.Upsample(scale_factor=2, mode="bilinear"), _double(3 * w, w)
        self.out = nn.Conv2d(w, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, h, w] -> a score of each class for each pixel."""
        a = self.enter(x)
        b = self.down1(self.pool(a))
        c = self.down2(self.pool(b))
        y = self.down3(self.pool(c))
        y = self.join3(torch.cat((c, self.up3(y)), 1))
        y = self.join2(torch.cat((b, self.up2(y)), 1))
        return self.out(self.join1(torch.cat((a, self.up1(y)), 1)))


def _conv(inside: int, outside: int, kernel: int, stride: int) -> nn.Sequential:
    """A convolution as YOLO has it."""
    return nn.Sequential(
        nn.Conv2d(inside, outside, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(outside, eps=0.001),
        nn.SiLU(),
    )


class Yolo(nn.Module):
    """A detector at two strides, whose boxes are decoded by grids and anchors."""

    def __init__(self, classes: int = 4):
        super().__init__()
        self.classes = classes
        self.stem = nn.Sequential(_conv(3, 8, 3, 2), _conv(8, 16, 3, 2), _conv(16, 16, 3, 1))
        self.stage3 = nn.Sequential(_conv(16, 32, 3, 2), _conv(32, 32, 1, 1))
        self.stage4 = nn.Sequential(_conv(32, 64, 3, 2), _conv(64, 64, 3, 1))
        self.pool = nn.MaxPool2d(5, 1, 2)
        self.join = _conv(128, 32, 1, 1)
        self.head3 = nn.Conv2d(64, 3 * (5 + classes), 1)
        self.head4 = nn.Conv2d(32, 3 * (5 + classes), 1)
        self.register_buffer("anchors3", torch.tensor([[10.0, 13.0], [16.0, 30.0], [33.0, 23.0]]))
        self.register_buffer("anchors4", torch.tensor([[30.0, 61.0], [62.0, 45.0], [59.0, 119.0]]))
        self.anchors3: Tensor
        self.anchors4: Tensor

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Images [n, 3, h, w] -> boxes [n, boxes, 4], corners in pixels, and scores [n, classes, boxes]."""
        p3 = self.stage3(self.stem(x))
        p4 = self.stage4(p3)
        p4 = self.join(torch.cat((p4, self.pool(p4)), 1))
        p3 = torch.cat((p3, functional.interpolate(p4, scale_factor=2.0, mode="nearest")), 1)
        heads = ((self.head3(p3), self.anchors3, 8.0), (self.head4(p4), self.anchors4, 16.0))
        found = [self.decoded(head, anchors, stride) for head, anchors, stride in heads]
        boxes, scores = (torch.cat(parts, 1) for parts in zip(*found, strict=True))
        return boxes, scores.transpose(1, 2)

    def decoded(self, head: Tensor, anchors: Tensor, stride: float) -> tuple[Tensor, Tensor]:
        """What a head says, as boxes and scores."""
        batch, _, rows, columns = head.shape
        y = head.view(batch, 3, 5 + self.classes, rows, columns).permute(0, 1, 3, 4, 2).sigmoid()
        at_y, at_x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing="ij")
        grid = torch.stack((at_x, at_y), -1).to(head.dtype)
        center = (y[..., 0:2] * 2 - 0.5 + grid) * stride
        half = (y[..., 2:4] * 2) ** 2 * anchors[None, :, None, None, :] / 2
        boxes = torch.cat((center - half, center + half), -1)
        scores = y[..., 4:5] * y[..., 5:]
        return boxes.reshape(batch, -1, 4), scores.reshape(batch, -1, self.classes)


class Tagger(nn.Module):
    """A tag for each word, by an LSTM in both directions."""

    def __init__(self, words: int = 100, d: int = 24, hidden: int = 32, tags: int = 9):
        super().__init__()
        self.embedding = nn.Embedding(words, d)
        self.lstm = nn.LSTM(d, hidden, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(2 * hidden, tags)

    def forward(self, ids: Tensor) -> Tensor:
        """Token numbers [batch, seq] -> scores of tags."""
        return self.linear(self.lstm(self.embedding(ids))[0])


class Gru(nn.Module):
    """A class for each sequence, by a GRU of two layers."""

    def __init__(self, d: int = 12, hidden: int = 32, classes: int = 5):
        super().__init__()
        self.gru = nn.GRU(d, hidden, num_layers=2, batch_first=True)
        self.linear = nn.Linear(hidden, classes)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """[batch, seq, d] -> scores, and the last state of both layers."""
        y, state = self.gru(x)
        return self.linear(y[:, -1]), state


class VitLayer(nn.Module):
    """Attention and a feed-forward net, each with layer norm before it."""

    def __init__(self, d: int, heads: int):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.attention = nn.MultiheadAttention(d, heads, batch_first=True)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, patches, d]."""
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.down(functional.gelu(self.up(self.norm2(x))))


class Vit(nn.Module):
    """An encoder of patches, with a class token."""

    def __init__(self, d: int = 48, heads: int = 3, patch: int = 8, side: int = 32, classes: int = 10):
        super().__init__()
        self.patches = nn.Conv2d(3, d, patch, patch)
        self.class_token = nn.Parameter(torch.zeros(1, 1, d))
        self.positions = nn.Parameter(torch.zeros(1, (side // patch) ** 2 + 1, d))
        self.layers: Sequence[nn.Module] = nn.ModuleList(VitLayer(d, heads) for _ in range(2))  # pyright: ignore
        self.norm, self.head = nn.LayerNorm(d), nn.Linear(d, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Images [n, 3, h, w] -> logits."""
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat((self.class_token.expand(x.shape[0], -1, -1), x), 1) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x)[:, 0])
