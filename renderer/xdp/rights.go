package xdp

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// MissingCapabilities returns the required capabilities that a set of effective ones lacks. The
// bits are those of CapEff in /proc/<pid>/status.
func MissingCapabilities(effective uint64) (out []string) {
	has := func(bit int) bool { return effective&(1<<bit) != 0 }
	all := has(unix.CAP_SYS_ADMIN) // implies the first two
	for _, c := range []struct {
		name string
		has  bool
	}{
		{"CAP_BPF", has(unix.CAP_BPF) || all},
		{"CAP_PERFMON", has(unix.CAP_PERFMON) || all},
		{"CAP_NET_ADMIN", has(unix.CAP_NET_ADMIN)},
	} {
		if !c.has {
			out = append(out, c.name)
		}
	}
	return out
}

// EffectiveCapabilities reads CapEff from the text of /proc/<pid>/status.
func EffectiveCapabilities(status string) (uint64, error) {
	for line := range strings.Lines(status) {
		if text, ok := strings.CutPrefix(line, "CapEff:"); ok {
			return strconv.ParseUint(strings.TrimSpace(text), 16, 64)
		}
	}
	return 0, errors.New("the status of the process has no line CapEff")
}

// permitted adds the missing capability to a permission error of the kernel. It returns other
// errors unchanged.
func permitted(err error) error {
	if !errors.Is(err, fs.ErrPermission) {
		return err
	}
	status, errStatus := os.ReadFile("/proc/self/status")
	effective, errParse := EffectiveCapabilities(string(status))
	return fmt.Errorf("the kernel refuses it, %s: %w", missingRight(effective, errors.Join(errStatus, errParse)), err)
}

func missingRight(effective uint64, unknown error) string {
	missing := MissingCapabilities(effective)
	switch {
	case unknown != nil:
		return "which needs " + strings.Join(MissingCapabilities(0), ", ")
	case len(missing) == 0:
		return "although no capability is missing: a seccomp profile, a lockdown or a user namespace forbids it"
	}
	return "since this process has no " + strings.Join(missing, ", ")
}

// The oldest kernels.
var (
	oldest    = version{5, 15}
	oldestXDP = version{5, 18} // for programs at XDP: bpf_xdp_load_bytes, xdp.frags
	oldestTCX = version{6, 6}
)

type version struct{ major, minor int }

func (v version) before(o version) bool {
	return v.major < o.major || v.major == o.major && v.minor < o.minor
}

// CheckKernel checks that a kernel supports a mode, and uplinks. The release is that of uname. The
// note says which feature of newer kernels is replaced by an older one.
func CheckKernel(release string, mode Mode, uplinks bool) (note string, err error) {
	var v version
	if _, err := fmt.Sscanf(release, "%d.%d", &v.major, &v.minor); err != nil {
		return fmt.Sprintf("its version is not understood: want %d.%d at least", oldest.major, oldest.minor), nil
	}
	byXDP := uplinks || mode == ModeXDP || mode == ModeGeneric
	switch {
	case v.before(oldest):
		return "", fmt.Errorf("kernel %s is too old for renderer xdp: want %d.%d at least", release, oldest.major, oldest.minor)
	case byXDP && v.before(oldestXDP):
		return "", fmt.Errorf("kernel %s is too old for --xdp-mode %s and for --xdp-uplink: want %d.%d at least, or mode auto without uplinks",
			release, mode, oldestXDP.major, oldestXDP.minor)
	case v.before(oldestTCX) && mode != ModeClsact:
		return fmt.Sprintf("it has no TCX, which comes with %d.%d: filters of clsact take its place", oldestTCX.major, oldestTCX.minor), nil
	}
	return "", nil
}
