"""The udev rule that lets ordinary users control the array on Linux.

Only control transfers need it; sound goes through the kernel's driver. ``uaccess`` grants access to
the user at the machine (which is why the file's number is below 73), the group ``audio`` to those
who may use microphones anyway, such as over ssh.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from hardware.xvf3800.boards import USB_IDS

RULES_NAME = "70-reachy-voice.rules"
RULES_PATH = f"/etc/udev/rules.d/{RULES_NAME}"
PROGRAM = shlex.quote(str(Path(sys.prefix) / "bin" / "reachy-voice"))
INSTALL = f"sudo {PROGRAM} xvf udev --install"
SECOND_STEP = "Then unplug the array and plug it in again. Over ssh: sudo usermod -aG audio $USER"
RELOAD = (
    ("udevadm", "control", "--reload"),
    ("udevadm", "trigger", "--subsystem-match=usb", "--action=add"),
)
"""Make udev read the rule and apply it to devices that are already plugged in."""


def _rule(vendor: int, product: int) -> str:
    return (
        f'SUBSYSTEM=="usb", ENV{{DEVTYPE}}=="usb_device", ATTR{{idVendor}}=="{vendor:04x}", '
        f'ATTR{{idProduct}}=="{product:04x}", MODE="0660", GROUP="audio", TAG+="uaccess"'
    )


RULES = "\n".join(_rule(vendor, product) for vendor, product in USB_IDS)
"""One line for each board."""
