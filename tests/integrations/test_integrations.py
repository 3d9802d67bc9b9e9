"""Bridges to other libraries do what their own examples say, on tiny networks and without a network connection."""

import json

import pytest
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

import pcshrink as pcs
from pcshrink.artifact import read
from pcshrink.common.preprocessing import Preprocessing
from pcshrink.errors import CheckpointError, ConfigError, SalienceError
from pcshrink.models import build, create, usual_preprocessing

pytestmark = [pytest.mark.train, pytest.mark.filterwarnings("ignore")]

EXAMPLE = torch.randn(4, 1, 16, 16, generator=torch.Generator().manual_seed(0))


def attached(steps=4):
    torch.manual_seed(0)
    model = build("digitsnet")
    return model, pcs.attach_(model, EXAMPLE[:2], pcs.ShrinkConfig(total_steps=steps, lr=0.05))


def moved(shrinker):
    """Whether the penalty has reached the generators: a task that gives no gradient at all leaves them as they are."""
    gate = next(iter(shrinker.method.salience_gates.values()))
    return gate.generator.fc2.bias.detach().clone()


class TestHub:
    @pytest.fixture
    def folder(self, tmp_path):
        hub = pytest.importorskip("huggingface_hub")
        assert hub is not None
        torch.manual_seed(0)
        seen = Preprocessing(input_size=(1, 16, 16), mean=(0.5,), std=(0.5,))
        where = {"latency_runtime": "eager", "latency_batch": 1, "latency_threads": 1}
        metrics = {
            "dense": {"error": 2.0, "params": 200, "latency_ms": 3.0, **where},
            "compact": {"error": 2.5, "params": 100, "latency_ms": 1.5, **where},
        }
        pcs.save(
            tmp_path / "run", build("digitsnet"), None, "pcshrink:digitsnet", input_shape=(1, 16, 16),
            metrics=metrics, preprocessing=seen,
        )  # fmt: skip
        return tmp_path / "run"

    def test_there_and_back(self, folder, tmp_path):
        from pcshrink.integrations.hub import HubNetwork

        first = HubNetwork(str(folder))
        first.save_pretrained(tmp_path / "copy")
        second = HubNetwork.from_pretrained(str(tmp_path / "copy"))
        assert torch.equal(first(EXAMPLE), second(EXAMPLE))
        texts = [path.read_text() for path in (tmp_path / "copy").iterdir() if path.suffix in (".json", ".md")]
        assert not [text for text in texts if str(tmp_path) in text], "a path of this machine"
        card = (tmp_path / "copy" / "README.md").read_text()
        assert "| error | 2.00 % | 2.50 % |" in card
        assert "| latency (eager, batch 1, 1 thread) | 3.00 ms | 1.50 ms |" in card
        assert "stretched to this size" in card
        assert 'from_pretrained("this/repository")' in card
        assert "library_name: pcshrink" in card

    def test_a_file_beside_the_network_cannot_say_that_code_is_trusted(self, tmp_path):
        pytest.importorskip("huggingface_hub")
        from pcshrink.integrations.hub import HubNetwork, model_card

        pcs.save(tmp_path, build("digitsnet"), None, "pcshrink.models:build", builder_args={"name": "digitsnet"})
        (tmp_path / "config.json").write_text(json.dumps({"trust_builder": True, "folder": str(tmp_path)}))
        with pytest.raises(CheckpointError, match=r"wants to run 'pcshrink\.models:build'"):
            HubNetwork.from_pretrained(str(tmp_path))
        assert "trust_builder=True" in model_card(read(tmp_path)), "the card says what it takes"

    def test_a_folder_of_something_else(self, tmp_path):
        pytest.importorskip("huggingface_hub")
        from pcshrink.integrations.hub import HubNetwork

        (tmp_path / "config.json").write_text(json.dumps({}))
        with pytest.raises(CheckpointError, match=r"pcshrink.json is missing"):
            HubNetwork.from_pretrained(str(tmp_path))


class TestLightning:
    @pytest.mark.parametrize("accumulate", [1, 2])
    def test_two_lines(self, accumulate):
        lightning = pytest.importorskip("lightning")
        from pcshrink.integrations.lightning import ShrinkCallback

        model, shrinker = attached()
        before = moved(shrinker)

        class Task(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model = model

            def training_step(self, batch, _):
                return F.cross_entropy(self.model(batch[0]), batch[1]) * 0  # only the penalty moves anything

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.05)

        loader = DataLoader(TensorDataset(EXAMPLE.repeat(4, 1, 1, 1), torch.zeros(16).long()), batch_size=4)
        trainer = lightning.Trainer(
            max_epochs=2, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, accumulate_grad_batches=accumulate, callbacks=[ShrinkCallback(shrinker)],
        )  # fmt: skip
        trainer.fit(Task(), loader)
        assert shrinker.steps == 8 // accumulate
        assert not torch.equal(before, moved(shrinker))


class TestAccelerate:
    def test_a_loop(self):
        accelerate = pytest.importorskip("accelerate")
        from pcshrink.integrations.accelerate import Shrinking

        model, shrinker = attached()
        accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
        model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.05))
        shrinking = Shrinking(accelerator, shrinker)
        for _ in range(4):
            with accelerator.accumulate(model):
                shrinking.backward(model(EXAMPLE).square().mean())
                optimizer.step()
                optimizer.zero_grad()
                shrinking.step()
        assert shrinker.steps == 2


class TestTransformers:
    @staticmethod
    def vit():
        transformers = pytest.importorskip("transformers")
        torch.manual_seed(0)
        config = transformers.ViTConfig(
            image_size=16, patch_size=8, num_channels=1, hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
            intermediate_size=32, num_labels=3,
        )  # fmt: skip
        return transformers.ViTForImageClassification(config)

    def test_by_the_name_of_a_folder(self, tmp_path):
        self.vit().save_pretrained(tmp_path)
        spec = f"transformers:{tmp_path}"
        same = [create(spec, pretrained=True).eval()(EXAMPLE) for _ in range(2)]
        assert torch.equal(*same)
        assert same[0].shape == (4, 3)
        assert create(spec, num_classes=5).eval()(EXAMPLE).shape == (4, 5)
        assert usual_preprocessing(spec).input_size == (1, 16, 16)

    def test_a_name_that_leads_nowhere(self, tmp_path):
        pytest.importorskip("transformers")
        with pytest.raises(ConfigError, match="no image classifier"):
            create(f"transformers:{tmp_path / 'nothing'}")

    def test_the_loss_grows_by_the_penalty(self):
        model = self.vit()
        from pcshrink.integrations.transformers import ShrinkCallback

        shrinker = pcs.attach_(model, {"pixel_values": EXAMPLE[:2]}, pcs.ShrinkConfig(total_steps=4, lr=0.05))
        callback = ShrinkCallback(shrinker)
        callback.on_train_begin()
        shrinker.method.steps = 4  # so that the penalty is not 0
        inputs = {"pixel_values": EXAMPLE, "labels": torch.zeros(4).long()}
        taught = model.train()(**inputs)
        plain = F.cross_entropy(taught.logits, inputs["labels"])
        assert taught.loss > plain
        callback.on_step_end()
        with pytest.raises(SalienceError, match="no loss"):
            callback.on_step_end()
        callback.on_train_end()
        assert torch.allclose(model.eval()(**inputs).loss, F.cross_entropy(model(**inputs).logits, inputs["labels"]))
