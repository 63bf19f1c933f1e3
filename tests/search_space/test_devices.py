"""Device profiles: names, aliases, and limits that belong together."""

from __future__ import annotations

import pytest
from stitchtune.graphs.errors import InputError
from stitchtune.search_space.devices import ALIASES, ARCHITECTURES, DEVICES, device_target, resolve, uncompilable


@pytest.mark.parametrize("name", sorted(DEVICES))
def test_profiles_are_consistent(name: str) -> None:
    target = DEVICES[name]
    assert target.name == name
    assert target.kind == "cuda"
    assert target.lanes == 32
    assert target.block_bytes <= target.shared_bytes <= target.l1_bytes
    assert target.resident_threads % 1024 in (0, 512)
    assert target.resident_threads // target.resident_blocks >= 32
    assert target.registers == 65536


def test_known_limits() -> None:
    h200 = device_target("cuda:h200")
    assert (h200.arch, h200.processors, h200.block_bytes, h200.shared_bytes) == ("sm_90", 132, 232448, 233472)
    assert device_target("cuda:t4").resident_threads == 1024
    assert device_target("cuda:rtx4090").resident_blocks == 24


def test_every_architecture_has_an_alias() -> None:
    assert {name.removeprefix("cuda:") for name in ALIASES} == set(ARCHITECTURES)
    for name in ALIASES:
        target, note = resolve(name)
        assert target.arch == name.removeprefix("cuda:")
        assert note is not None
        assert target.name in note


def test_a_profile_needs_no_note() -> None:
    assert resolve("cuda:h200") == (DEVICES["cuda:h200"], None)


@pytest.mark.parametrize("name", ["cuda:h300", "h200", "cuda", "cpu", ""])
def test_unknown_names_list_the_known_ones(name: str) -> None:
    with pytest.raises(InputError, match=r"cuda:h200.*cuda:sm_90") as error:
        device_target(name)
    assert "\n" not in str(error.value)


def test_v100_is_model_only_under_cuda_13() -> None:
    v100 = device_target("cuda:v100")
    assert uncompilable(v100, 12) is None
    reason = uncompilable(v100, 13)
    assert reason is not None
    assert "cuda12" in reason
    assert all(uncompilable(t, 13) is None for t in DEVICES.values() if t is not v100)
