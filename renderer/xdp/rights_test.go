package xdp

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMissingCapabilitiesAreNamed(t *testing.T) {
	const bpf, perfmon, netAdmin, sysAdmin = 1 << unix.CAP_BPF, 1 << unix.CAP_PERFMON, 1 << unix.CAP_NET_ADMIN, 1 << unix.CAP_SYS_ADMIN
	for _, tc := range []struct {
		effective uint64
		want      string
	}{
		{bpf | perfmon | netAdmin, ""},
		{sysAdmin | netAdmin, ""},
		{0, "CAP_BPF CAP_PERFMON CAP_NET_ADMIN"},
		{perfmon | netAdmin, "CAP_BPF"},
		{bpf | netAdmin, "CAP_PERFMON"},
		{bpf | perfmon, "CAP_NET_ADMIN"},
	} {
		status := fmt.Sprintf("Name:\tx\nCapPrm:\t0000000000000000\nCapEff:\t%016x\nCapBnd:\tffffffffffffffff\n", tc.effective)
		effective, err := EffectiveCapabilities(status)
		if got := strings.Join(MissingCapabilities(effective), " "); got != tc.want || err != nil {
			t.Errorf("%x: %q, %v, want %q", tc.effective, got, err, tc.want)
		}
	}
	for _, status := range []string{"", "CapEff:\tmany\n"} {
		if _, err := EffectiveCapabilities(status); err == nil {
			t.Errorf("%q is read", status)
		}
	}
}

func TestCheckKernelNamesMissingFeatures(t *testing.T) {
	for _, tc := range []struct {
		release    string
		mode       Mode
		uplinks    bool
		note, want string
	}{
		{"6.18.44-fc", ModeAuto, false, "", ""},
		{"6.6.0", ModeXDP, true, "", ""},
		{"6.5.13-generic", ModeAuto, false, "no TCX", ""},
		{"6.5.13", ModeClsact, false, "", ""},
		{"5.15.0-91-generic", ModeAuto, false, "no TCX", ""},
		{"5.15.0", ModeAuto, true, "", "want 5.18 at least"},
		{"5.17.1", ModeXDP, false, "", "want 5.18 at least"},
		{"5.14.0-427.el9", ModeAuto, false, "", "kernel 5.14.0-427.el9 is too old"},
		{"4.19.1", ModeAuto, false, "", "want 5.15 at least"},
		{"", ModeAuto, false, "not understood", ""},
	} {
		note, err := CheckKernel(tc.release, tc.mode, tc.uplinks)
		if (err == nil) != (tc.want == "") || err != nil && !strings.Contains(err.Error(), tc.want) || !strings.Contains(note, tc.note) || (note == "") != (tc.note == "") {
			t.Errorf("%s, %s, uplinks %t: %q, %v, want %q, %q", tc.release, tc.mode, tc.uplinks, note, err, tc.note, tc.want)
		}
	}
}

func TestNewKernelNamesFolderOutsideBPFFileSystem(t *testing.T) {
	dir := t.TempDir()
	pins := filepath.Join(dir, "not", "there")
	_, err := NewKernel(KernelOptions{PinPath: pins})
	if want := dir + " is not in a bpf file system: mount one by: mount -t bpf bpf"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	if _, err := os.Stat(filepath.Dir(pins)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("folders were made all the same: %v", err)
	}
}

func TestKernelNamesMissingCapability(t *testing.T) {
	if err := permitted(unix.ENOSPC); !errors.Is(err, unix.ENOSPC) || err.Error() != unix.ENOSPC.Error() {
		t.Errorf("another error became %v", err)
	}
	for _, refused := range []error{unix.EPERM, unix.EACCES} {
		if err := permitted(fmt.Errorf("map flows: %w", refused)); !errors.Is(err, refused) || !strings.Contains(err.Error(), "capabilit") && !strings.Contains(err.Error(), "CAP_") {
			t.Errorf("%v names no right", err)
		}
	}
	for want, tc := range map[string]struct {
		effective uint64
		unknown   error
	}{
		"since this process has no CAP_BPF, CAP_PERFMON":  {1 << unix.CAP_NET_ADMIN, nil},
		"although no capability is missing":               {1<<unix.CAP_NET_ADMIN | 1<<unix.CAP_SYS_ADMIN, nil},
		"which needs CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN": {0, os.ErrNotExist},
	} {
		if got := missingRight(tc.effective, tc.unknown); !strings.Contains(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
