package plugin_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/renderer/plugin"
	"github.com/sluice-net/sluice/renderer/plugin/plugintest"
	"github.com/sluice-net/sluice/renderer/xdp"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

var small = plugin.MemoryOptions{Lines: 1 << 16, Slots: 1 << 10, Flows: 64}

// open opens the memory of a directory, until the test ends.
func open(t *testing.T, directory string) *plugin.Memory {
	t.Helper()
	o := small
	o.Directory = directory
	m, err := plugin.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func TestMemoryHasOneOwner(t *testing.T) {
	o := small
	o.Directory = t.TempDir()
	m := open(t, o.Directory)
	if second, err := plugin.Open(o); err == nil {
		t.Errorf("a second one is opened: %v", second.Close())
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	open(t, o.Directory)
}

// TestMemoryIsAdopted checks that what is in force stays in force when another process opens the
// memory, unless the sizes differ.
func TestMemoryIsAdopted(t *testing.T) {
	const id = 7
	dir := t.TempDir()
	m := open(t, dir)
	record := make([]compile.Line, 2)
	record[1][compile.RecordID] = id
	digest := xdp.StateDigest{1, 2, 3}
	for _, err := range []error{m.Prepare(2, 1), m.Write(0, record), m.Flip(id, 1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := m.Switch(); err != nil {
		t.Fatal(err)
	}
	if err := m.SetStateDigest(digest); err != nil {
		t.Fatal(err)
	}
	secret := m.Secret()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	m = open(t, dir)
	if m.StateDigest() != digest || m.Secret() != secret || m.Record(id) != 1 {
		t.Errorf("it has the digest %v and the record %d", m.StateDigest(), m.Record(id))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	o := small
	o.Directory, o.Lines = dir, 1<<15
	m, err := plugin.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	if m.StateDigest() != (xdp.StateDigest{}) || m.Record(id) != 0 {
		t.Errorf("memory of another size has the digest %v and the record %d", m.StateDigest(), m.Record(id))
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestMemoryRefusesEndpointWhosePlaceIsTaken: the program would not find it.
func TestMemoryRefusesEndpointWhosePlaceIsTaken(t *testing.T) {
	const id, other = 7, 7 + 1<<14
	m := open(t, t.TempDir())
	record := make([]compile.Line, 2)
	record[1][compile.RecordID] = id
	for _, err := range []error{m.Write(0, record), m.Flip(id, 1)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := m.Flip(other, 1); !errors.Is(err, plugin.ErrPlace) {
		t.Errorf("the error is %v", err)
	}
	if err := m.Flip(other, 0); err != nil || m.Record(id) != 1 {
		t.Errorf("to remove what is not there: %v, the other one has record %d", err, m.Record(id))
	}
}

func TestMemoryRefusesLinesBeyondItsCapacity(t *testing.T) {
	m := open(t, t.TempDir())
	lines, _ := m.Limits()
	if err := m.Write(uint32(lines), make([]compile.Line, 1)); err == nil {
		t.Error("a line beyond the last one is written")
	}
	if err := m.Write(uint32(lines-1), make([]compile.Line, 1)); err != nil {
		t.Error(err)
	}
}

func TestOpenRefusesInvalidSizes(t *testing.T) {
	for _, o := range []plugin.MemoryOptions{{Flows: 100}, {Flows: -1}, {Flows: 1 << 24}, {Lines: -1}, {Slots: -1}, {TunnelPorts: make([]uint16, 9)}} {
		o.Directory = t.TempDir()
		if m, err := plugin.Open(o); err == nil {
			t.Errorf("%+v is opened: %v", o, m.Close())
		}
	}
}

// foreign are changes of both files that make them others', or something else.
func foreign() map[string]func(policy, state string) error {
	changes := map[string]func(policy, state string) error{
		"writable by others":    func(policy, _ string) error { return os.Chmod(policy, 0o622) },
		"state for the group":   func(_, state string) error { return os.Chmod(state, 0o660) },
		"another name":          func(policy, _ string) error { return os.Link(policy, policy+"1") },
		"another name of state": func(_, state string) error { return os.Link(state, state+"1") },
		"cut":                   func(policy, _ string) error { return os.Truncate(policy, 1<<20) },
		"state cut":             func(_, state string) error { return os.Truncate(state, 1<<12) },
		"empty":                 func(_, state string) error { return os.Truncate(state, 0) },
		"a link": func(policy, _ string) error {
			return errors.Join(os.Rename(policy, policy+"1"), os.Symlink(policy+"1", policy))
		},
		"a pipe":                     func(policy, _ string) error { return errors.Join(os.Remove(policy), unix.Mkfifo(policy, 0o600)) },
		"a folder":                   func(_, state string) error { return errors.Join(os.Remove(state), os.Mkdir(state, 0o700)) },
		"none":                       func(policy, _ string) error { return os.Remove(policy) },
		"of something else":          func(policy, _ string) error { return os.WriteFile(policy, make([]byte, 4096), 0o600) },
		"of another version":         func(policy, _ string) error { return patch(policy, 8) },
		"with another header":        func(policy, _ string) error { return patch(policy, 12) },
		"with another purpose":       func(policy, _ string) error { return patch(policy, 0) },
		"state of another version":   func(_, state string) error { return patch(state, 8) },
		"with other lines":           func(policy, _ string) error { return patch(policy, 18) },
		"with connections elsewhere": func(policy, _ string) error { return patch(policy, 50) },
		"with counters elsewhere":    func(policy, _ string) error { return patch(policy, 99) },
		"with many lines":            func(policy, _ string) error { return patch(policy, 147) },
		"with many counters":         func(policy, _ string) error { return patch(policy, 150) },
		"with many buckets":          func(policy, _ string) error { return patch(policy, 155) },
		"in a folder of others":      func(policy, _ string) error { return os.Chmod(filepath.Dir(policy), 0o770) },
	}
	if os.Geteuid() == 0 {
		changes["of another user"] = func(policy, _ string) error { return os.Chown(policy, 12345, 0) }
		changes["state of another user"] = func(_, state string) error { return os.Chown(state, 12345, 0) }
		changes["folder of another user"] = func(policy, _ string) error { return os.Chown(filepath.Dir(policy), 12345, 0) }
	}
	return changes
}

// TestProgramRefusesFilesOfOthers checks that it reads no policy that others than its user can
// write, and that it looks nowhere beyond the files.
func TestProgramRefusesFilesOfOthers(t *testing.T) {
	for name, change := range foreign() {
		p := plugintest.New(t, small)
		if err := change(filepath.Join(p.Directory(), "policy"), filepath.Join(p.Directory(), "state")); err != nil {
			t.Fatal(err)
		}
		if _, err := p.Probe(7, compile.ToPod, make([]byte, 60)); err == nil {
			t.Errorf("%s: the program answers", name)
		}
		if err := p.Close(); err == nil || !strings.Contains(err.Error(), "exit status 1") {
			t.Errorf("%s: the program ends with %v, want status 1", name, err)
		}
	}
}

// TestMemoryAdoptsNoFilesOfOthers: it makes new ones, whatever is there, and follows no link. A
// folder of others it refuses.
func TestMemoryAdoptsNoFilesOfOthers(t *testing.T) {
	for name, change := range foreign() {
		o := small
		o.Directory = t.TempDir()
		m := open(t, o.Directory)
		secret := m.Secret()
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		target := filepath.Join(o.Directory, "target")
		policy := filepath.Join(o.Directory, "policy")
		if err := errors.Join(change(policy, filepath.Join(o.Directory, "state")), os.WriteFile(target, []byte("mine"), 0o600), os.Symlink(target, policy+".new")); err != nil {
			t.Fatal(err)
		}
		m, err := plugin.Open(o)
		switch name {
		case "in a folder of others", "folder of another user":
			if err == nil || !strings.Contains(err.Error(), "others may write to it") {
				t.Errorf("%s: %v", name, err)
			}
			continue
		case "a folder":
			if err == nil {
				t.Errorf("%s: it is replaced: %v", name, m.Close())
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if m.Secret() == secret {
			t.Errorf("%s: it is adopted", name)
		}
		if b, err := os.ReadFile(target); err != nil || string(b) != "mine" {
			t.Errorf("%s: a file behind a link has %q: %v", name, b, err)
		}
		if info, err := os.Lstat(policy); err != nil || info.Mode() != 0o600 {
			t.Errorf("%s: the new file is %v: %v", name, info, err)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestTruncatedFilesEndNoProcess: neither that of the agent, nor one that judges packets.
func TestTruncatedFilesEndNoProcess(t *testing.T) {
	for _, name := range []string{"policy", "state"} {
		p := plugintest.New(t, small)
		if _, err := p.Probe(7, compile.ToPod, make([]byte, 60)); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(filepath.Join(p.Directory(), name), 0); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if passes, err := p.Probe(7, compile.ToPod, make([]byte, 60)); err != nil || passes {
				t.Errorf("%s: the program says %t: %v", name, passes, err)
			}
		}
		if name == "state" {
			if _, err := p.Drops(); !errors.Is(err, plugin.ErrCut) {
				t.Errorf("the drops are read: %v", err)
			}
			if _, err := p.Hits(0, 8); !errors.Is(err, plugin.ErrCut) {
				t.Errorf("the hits are read: %v", err)
			}
		} else if err := p.SetEventFilter(xdp.EventFilter{}); !errors.Is(err, plugin.ErrCut) {
			t.Errorf("the filter is written: %v", err)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// patch changes a byte of a file.
func patch(path string, at int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte{0xee}, at)
	return errors.Join(err, f.Close())
}
