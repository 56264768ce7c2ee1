"""Makes ``parakeet.nemo`` beside this file: a Parakeet-TDT of 0.6 million parameters.

It has the classes and configuration keys of nvidia/parakeet-tdt-0.6b-v3 (FastConformer with 8x
subsampling, a TDT decoder with durations 0 to 4, a sentencepiece tokenizer with capitals and
punctuation) and knows ten sentences. It is trained on speech that espeak-ng makes here, so no
recording and no other model is part of it. Run it where NeMo is installed:

    OMP_NUM_THREADS=1 OMP_WAIT_POLICY=passive python tests/support/tiny_models/parakeet.py

The same seed and packages give the same model. It takes 12 minutes on one core and finally prints
the share of new recordings that it transcribes exactly.
"""

from __future__ import annotations

import argparse
import io
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

PHRASES = (
    "Go forward ten meters.",
    "What time is it?",
    "Turn your head to the left.",
    "Stop, please.",
    "Tell me a short story.",
    "What do you see?",
    "Look at me.",
    "Good morning, robot.",
    "How many days are there in a week?",
    "Thank you very much.",
)
"""All the sentences it knows."""
VOICES = ("en-us", "en-us+m1", "en-us+m3", "en-us+m7", "en-us+f1", "en-us+f2", "en-us+f4", "en-gb")
"""espeak-ng voices: a language and a speaker variant."""
RATE = 16_000
PIECES = 96
"""Size of the tokenizer's vocabulary."""
DURATIONS = (0, 1, 2, 3, 4)
STEPS = 1800
BATCH = 8
FILE = Path(__file__).with_name("parakeet.nemo")

Samples = NDArray[np.float32]


# --- speech ------------------------------------------------------------------------------------


def espeak(text: str, voice: str, words_per_minute: int, pitch: int) -> Samples:
    """16 kHz float samples, shape ``(n,)``."""
    command = ["espeak-ng", "-v", voice, "-s", str(words_per_minute), "-p", str(pitch), "--stdout"]
    wave = subprocess.run([*command, text], check=True, capture_output=True).stdout
    samples, rate = soundfile.read(io.BytesIO(wave), dtype="float32")
    resampled: Samples = soxr.resample(samples, rate, RATE, quality="HQ")
    return resampled


def clips(seed: int, of_each: int) -> list[tuple[Samples, str]]:
    """Every phrase by every voice, ``of_each`` times with its own speed and pitch."""
    rng = random.Random(seed)
    return [
        (espeak(phrase, voice, rng.randint(140, 190), rng.randint(35, 65)), phrase)
        for phrase in PHRASES
        for voice in VOICES
        for _ in range(of_each)
    ]


def example(sources: list[tuple[Samples, str]], rng: np.random.Generator) -> tuple[Samples, str]:
    """Up to four phrases with pauses, at any loudness, mostly with a little noise."""
    count = int(rng.choice([1, 2, 4, 0], p=[0.6, 0.2, 0.15, 0.05]))
    pieces: list[Samples] = [silence(rng, 0.6)]
    texts = []
    if not count:
        pieces.append(np.zeros(int(rng.uniform(0.5, 2) * RATE), dtype=np.float32))
    for index in rng.integers(0, len(sources), count):
        samples, text = sources[index]
        pieces += [samples, silence(rng, 0.9)]
        texts.append(text)
    whole = np.concatenate(pieces) * np.float32(rng.uniform(0.3, 1.0))
    if rng.random() < 0.7:
        noise = rng.standard_normal(len(whole)).astype(np.float32)
        whole = whole + noise * np.float32(10 ** rng.uniform(-4, -2.3))
    return whole, " ".join(texts)


def silence(rng: np.random.Generator, longest_s: float) -> Samples:
    """Silence; empty in one case of four."""
    seconds = max(0.0, rng.uniform(-longest_s / 3, longest_s))
    return np.zeros(int(seconds * RATE), dtype=np.float32)


# --- the model ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Shape:
    """The numbers in which two Parakeets differ. ``predictor`` is the decoder's width too."""

    mels: int
    width: int
    layers: int
    heads: int
    channels: int
    predictor: int
    dropout: float


TINY = Shape(mels=80, width=80, layers=3, heads=4, channels=48, predictor=80, dropout=0.1)
V3 = Shape(mels=128, width=1024, layers=24, heads=8, channels=256, predictor=640, dropout=0.2)
"""nvidia/parakeet-tdt-0.6b-v3's, according to public audits of its file."""


def tokenizer(directory: Path, sentences: Sequence[str], pieces: int) -> Path:
    """Train a tokenizer on ``sentences``; returns its directory."""
    import sentencepiece

    text = directory / "sentences.txt"
    text.write_text("\n".join(sentences), encoding="utf-8")
    sentencepiece.SentencePieceTrainer.train(
        input=str(text),
        model_prefix=str(directory / "tokenizer"),
        vocab_size=pieces,
        model_type="bpe",
        character_coverage=1.0,
        bos_id=-1,
        eos_id=-1,
        minloglevel=2,
    )
    forget_paths(directory / "tokenizer.model")
    names = sentencepiece.SentencePieceProcessor(model_file=str(directory / "tokenizer.model"))
    spelled = [names.id_to_piece(index) for index in range(pieces)]
    (directory / "vocab.txt").write_text("\n".join(spelled), encoding="utf-8")
    return directory


def forget_paths(tokenizer_model: Path) -> None:
    """Remove the paths of the training machine."""
    from sentencepiece import sentencepiece_model_pb2

    content = sentencepiece_model_pb2.ModelProto()
    content.ParseFromString(tokenizer_model.read_bytes())
    del content.trainer_spec.input[:]
    content.trainer_spec.model_prefix = "tokenizer"
    tokenizer_model.write_bytes(content.SerializeToString())


def configuration(tokenizer_directory: Path, shape: Shape) -> dict[str, Any]:
    """The keys of nvidia/parakeet-tdt-0.6b-v3's own configuration."""
    durations = list(DURATIONS)
    return {
        "sample_rate": RATE,
        "log_prediction": False,
        "model_defaults": {
            "enc_hidden": shape.width,
            "pred_hidden": shape.predictor,
            "joint_hidden": shape.predictor,
            "tdt_durations": durations,
            "num_tdt_durations": len(durations),
        },
        "tokenizer": {"dir": str(tokenizer_directory), "type": "bpe"},
        "preprocessor": {
            "_target_": "nemo.collections.asr.modules.AudioToMelSpectrogramPreprocessor",
            "sample_rate": RATE,
            "normalize": "per_feature",
            "window_size": 0.025,
            "window_stride": 0.01,
            "window": "hann",
            "features": shape.mels,
            "n_fft": 512,
            "log": True,
            "frame_splicing": 1,
            "dither": 1e-05,
            "pad_to": 0,
        },
        "spec_augment": None,
        "encoder": encoder_configuration(shape),
        **transducer_configuration(shape),
        "decoding": {
            "strategy": "greedy_batch",
            "model_type": "tdt",
            "durations": durations,
            "greedy": {"max_symbols": 10},
            "beam": {"beam_size": 2, "return_best_hypothesis": False},
        },
    }


def encoder_configuration(shape: Shape) -> dict[str, Any]:
    return {
        "_target_": "nemo.collections.asr.modules.ConformerEncoder",
        "feat_in": shape.mels,
        "feat_out": -1,
        "n_layers": shape.layers,
        "d_model": shape.width,
        "use_bias": False,
        "subsampling": "dw_striding",
        "subsampling_factor": 8,
        "subsampling_conv_channels": shape.channels,
        "causal_downsampling": False,
        "ff_expansion_factor": 4,
        "self_attention_model": "rel_pos",
        "n_heads": shape.heads,
        "att_context_size": [-1, -1],
        "att_context_style": "regular",
        "xscaling": False,
        "untie_biases": True,
        "pos_emb_max_len": 5000,
        "conv_kernel_size": 9,
        "conv_norm_type": "batch_norm",
        "conv_context_size": None,
        "dropout": 0.1,
        "dropout_pre_encoder": 0.1,
        "dropout_emb": 0.0,
        "dropout_att": 0.1,
        "stochastic_depth_drop_prob": 0.0,
        "stochastic_depth_mode": "linear",
        "stochastic_depth_start_layer": 1,
    }


def transducer_configuration(shape: Shape) -> dict[str, Any]:
    return {
        "decoder": {
            "_target_": "nemo.collections.asr.modules.RNNTDecoder",
            "normalization_mode": None,
            "random_state_sampling": False,
            "blank_as_pad": True,
            "prednet": {
                "pred_hidden": shape.predictor,
                "pred_rnn_layers": 2,
                "t_max": None,
                "dropout": shape.dropout,
            },
        },
        "joint": {
            "_target_": "nemo.collections.asr.modules.RNNTJoint",
            "log_softmax": None,
            "preserve_memory": False,
            "fuse_loss_wer": False,
            "fused_batch_size": -1,
            "jointnet": {
                "joint_hidden": shape.predictor,
                "activation": "relu",
                "dropout": shape.dropout,
            },
            "num_extra_outputs": len(DURATIONS),
        },
        "loss": {
            "loss_name": "tdt",
            "tdt_kwargs": {
                "fastemit_lambda": 0.0,
                "durations": list(DURATIONS),
                "sigma": 0.02,
                "omega": 0.0,
            },
        },
    }


def new_model(tokenizer_directory: Path, shape: Shape) -> Any:
    """A model with random weights."""
    from nemo.collections.asr.models import EncDecRNNTBPEModel
    from omegaconf import OmegaConf

    return EncDecRNNTBPEModel(cfg=OmegaConf.create(configuration(tokenizer_directory, shape)))


# --- the loss ----------------------------------------------------------------------------------


def tdt_loss(joint: Any, targets: Any, frames: Any, lengths: Any, blank: int) -> Any:
    """Mean negative log likelihood of a token-and-duration transducer (Xu et al., 2023, eq. 6).

    ``joint``: raw outputs, shape ``(batch, time, tokens + 1, vocabulary + 1 + durations)``.
    ``targets``: shape ``(batch, tokens)``. NeMo's own loss needs a CUDA device.
    """
    import torch

    count = len(DURATIONS)
    labels = joint[..., :-count].log_softmax(-1)
    durations = joint[..., -count:].log_softmax(-1)
    batch, time, width, _ = labels.shape
    blanks = labels[..., blank]
    index = targets[:, None, :, None].expand(batch, time, width - 1, 1)
    tokens = labels[:, :, :-1].gather(3, index).squeeze(3)
    never = torch.full((batch, 1), -1e30)
    rows: list[Any] = []
    for at in range(time):
        arrivals = (
            [] if at else [torch.cat([torch.zeros(batch, 1), never.expand(-1, width - 1)], 1)]
        )
        for place, duration in enumerate(DURATIONS):
            begin = at - duration
            if duration == 0 or begin < 0:
                continue
            from_there = rows[begin] + durations[:, begin, :, place]
            arrivals.append(from_there + blanks[:, begin])
            arrivals.append(torch.cat([never, from_there[:, :-1] + tokens[:, begin]], 1))
        arrived = torch.stack(arrivals).logsumexp(0)
        # Tokens of duration 0: a walk along the row, as one cumulative sum.
        stay = torch.cat([torch.zeros(batch, 1), tokens[:, at] + durations[:, at, :-1, 0]], 1)
        path = stay.cumsum(1)
        rows.append((arrived - path).logcumsumexp(1) + path)
    alphas = torch.stack(rows, 1)
    every = torch.arange(batch)
    exits = [
        torch.where(
            frames >= duration,
            (alphas + blanks + durations[..., place])[
                every, (frames - duration).clamp(min=0), lengths
            ],
            torch.tensor(-1e30),
        )
        for place, duration in enumerate(DURATIONS)
        if duration
    ]
    return -torch.stack(exits).logsumexp(0).mean()


# --- training ----------------------------------------------------------------------------------


def collate(model: Any, batch: list[tuple[Samples, str]]) -> tuple[Any, Any, Any, Any]:
    """Samples, their lengths, tokens, their lengths, padded to one shape each."""
    import torch

    tokens = [model.tokenizer.text_to_ids(text) for _, text in batch]
    lengths = torch.tensor([len(samples) for samples, _ in batch])
    counts = torch.tensor([len(ids) for ids in tokens])
    audio = torch.zeros(len(batch), int(lengths.max()))
    targets = torch.zeros(len(batch), int(counts.max()), dtype=torch.long)
    for row, ((samples, _), ids) in enumerate(zip(batch, tokens, strict=True)):
        audio[row, : len(samples)] = torch.from_numpy(samples)
        targets[row, : len(ids)] = torch.tensor(ids)
    return audio, lengths, targets, counts


def train(model: Any, sources: list[tuple[Samples, str]], steps: int, seed: int) -> None:
    import torch

    rng = np.random.default_rng(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    blank = model.tokenizer.vocab_size
    model.train()
    for step in range(steps):
        batch = [example(sources, rng) for _ in range(BATCH)]
        audio, lengths, targets, counts = collate(model, batch)
        encoded, frames = model(input_signal=audio, input_signal_length=lengths)
        predicted, _, _ = model.decoder(targets=targets, target_length=counts)
        joint = model.joint.joint(encoded.transpose(1, 2), predicted.transpose(1, 2))
        loss = tdt_loss(joint, targets, frames, counts, blank)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == steps - 1:
            say(f"step {step:5d}  loss {loss.item():8.3f}")


def exact(model: Any, tests: list[tuple[Samples, str]]) -> float:
    """Share of clips that NeMo's own ``transcribe`` gets exactly right."""
    model.eval()
    found = model.transcribe([samples for samples, _ in tests], batch_size=16, verbose=False)
    return float(np.mean([hyp.text == text for hyp, (_, text) in zip(found, tests, strict=True)]))


def save(model: Any, file: Path) -> None:
    from omegaconf import open_dict

    # ``transcribe`` of a restored model needs these; a new model refuses them.
    with open_dict(model.cfg):
        model.cfg.train_ds = {"use_start_end_token": False}
        model.cfg.validation_ds = {"use_start_end_token": False}
        model.cfg.tokenizer.dir = "tokenizer"
    model.save_to(str(file))


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description="Train the tiny Parakeet of the tests.")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=6)
    arguments = parser.parse_args()
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(arguments.seed)
    say("making speech")
    sources, tests = clips(arguments.seed, 6), clips(arguments.seed + 1000, 1)
    with tempfile.TemporaryDirectory() as directory:
        model = new_model(tokenizer(Path(directory), PHRASES * 20, PIECES), TINY)
        say(f"{sum(p.numel() for p in model.parameters())} parameters")
        train(model, sources, arguments.steps, arguments.seed)
        save(model, arguments.out)
    share = exact(model, tests)
    say(f"{arguments.out}: {arguments.out.stat().st_size} bytes, {share:.1%} of new clips exact")


if __name__ == "__main__":
    main()
