"""The engine of the demo page in Chromium, against PyTorch, SciPy and smoothcert's own statistics."""

import base64

import numpy as np
import pytest
import torch
from demo_networks_in_torch import as_lenet
from scipy import special

from smoothcert.checkpoints.pretrained import load_pretrained
from smoothcert.demo import render_demo
from smoothcert.demo.networks import network_facts, network_names, packed_network
from smoothcert.philox import Purpose, normal
from smoothcert.statistics import bounds

ALPHA = 0.001


@pytest.fixture(scope="module")
def tab(browser):
    """A tab with the engine's scripts alone."""
    page = render_demo()
    start = page.index('<script id="engine">')
    engine = page[start : page.index("</script>", start)] + "</script>"
    opened = browser.new_page()
    opened.set_content(engine)
    return opened


def run_network(tab, name, plain, expression, **values):
    """Evaluate an expression with `network`, and with arrays as Float32Array."""
    code = f"""async ({{packed, plain, values}}) => {{
        const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
        const network = new Network(await readNetwork(bytes), plain);
        const images = (values.images ?? []).map((image) => Float32Array.from(image));
        return {expression};
    }}"""
    packed = base64.b64encode(packed_network(name)).decode()
    return tab.evaluate(code, {"packed": packed, "plain": plain, "values": values})


@pytest.mark.parametrize("plain", [False, True], ids=["vector", "plain"])
def test_scores_are_those_of_pytorch(tab, mini, plain):
    images = mini.floats(range(7)) + 0.5 * torch.randn(7, 1, 28, 28)  # one lane stays empty
    for name in ("gaussian-0.50", "catrs-1.00", "ordinary"):
        with torch.no_grad():
            expected = as_lenet(name)(images).numpy()
        rows = images.flatten(1).tolist()
        code = "network.scores(images).map((scores) => Array.from(scores))"
        found = run_network(tab, name, plain, code, images=rows)
        np.testing.assert_allclose(np.array(found), expected, atol=1e-4)


def test_gradients_are_those_of_pytorch(tab, mini):
    image = (mini.floats([4]) + 0.5 * torch.randn(1, 1, 28, 28)).requires_grad_()
    weights = torch.randn(10)
    (as_lenet("catrs-0.50")(image)[0] * weights).sum().backward()
    code = "(network.scores(images), Array.from(network.gradient(1, Float32Array.from(values.weights))))"
    rows = [[0.0] * 784, image.detach().flatten().tolist()]
    found = np.array(run_network(tab, "catrs-0.50", False, code, images=rows, weights=weights.tolist()))
    expected = image.grad.flatten().numpy()
    np.testing.assert_allclose(found, expected, atol=1e-4 * np.abs(expected).max())


def test_the_browser_uses_vector_instructions(tab):
    assert tab.evaluate("WebAssembly.validate(assembleKernel())")


@pytest.mark.parametrize("n", [10, 100, 1000, 10_000, 100_000])
def test_bounds_and_radii_are_ours(tab, n):
    successes = np.unique(np.concatenate([np.linspace(0, n, 40), n - np.arange(6)]).astype(int))
    expected = bounds.failure_upper_bound(successes, n, ALPHA)
    code = "([all, n]) => all.map((k) => [failureUpperBound(k, n, 0.001), certify(1, k, n, 0.5, 0.001).radius])"
    found = np.array(tab.evaluate(code, [successes.tolist(), n]))
    np.testing.assert_allclose(found[:, 0], expected, rtol=1e-9, atol=0)
    np.testing.assert_allclose(found[:, 1], bounds.gaussian_radius(expected, 0.5), rtol=1e-9, atol=1e-9)


def test_normal_quantiles_are_those_of_scipy(tab):
    p = np.concatenate([np.geomspace(1e-300, 0.5, 200), 1 - np.geomspace(1e-12, 0.5, 50)])
    found = tab.evaluate("(all) => all.map(normalQuantile)", p.tolist())
    np.testing.assert_allclose(found, special.ndtri(p), rtol=1e-13, atol=1e-13)


def test_predictions_are_ours(tab):
    counts = np.random.default_rng(0).multinomial(200, [0.5, 0.3, 0.2] + 7 * [0.0], size=300)
    counts[0] = [100, 100] + 8 * [0]
    expected = bounds.predict_counts(counts, ALPHA)
    assert set(expected.tolist()) >= {-1, 0}
    assert tab.evaluate("(all) => all.map((votes) => predict(votes, 0.001))", counts.tolist()) == expected.tolist()


def test_noise_is_ours(tab):
    code = "(address) => Array.from(normalNoise(new Float32Array(784), ...address))"
    for address in ((0, 0, 0, 0), (4_000_000_000, 101, 956, int(Purpose.PREDICT))):
        expected = normal(address[0], address[1:], 784).numpy()
        np.testing.assert_allclose(tab.evaluate(code, list(address)), expected, atol=2e-6)


def test_networks_come_from_the_bundled_models():
    for name in network_names():
        facts = network_facts(name)
        if facts["name"].startswith("mnist-catrs"):
            assert facts["sha256"] == load_pretrained(facts["name"]).sha256
    assert [network_facts(f"catrs-{sigma}")["sigma"] for sigma in ("0.25", "0.50", "1.00")] == ["0.25", "0.5", "1.0"]
