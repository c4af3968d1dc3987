package acl_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/socketclient"
	"go.fd.io/govpp/binapi/acl"
	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"
	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// vpp is a VPP process without devices.
type vpp struct {
	t       *testing.T
	binary  string
	dir     string
	heap    int     // MB
	every   float64 // seconds between figures in its statistics segment
	process *exec.Cmd
}

func (v *vpp) socket() string { return filepath.Join(v.dir, "api.sock") }

func (v *vpp) statsSocket() string { return filepath.Join(v.dir, "stats.sock") }

// startVPP starts the VPP binary that the environment names.
func startVPP(t *testing.T) *vpp { return startVPPWith(t, 512, 10) }

// startVPPWith starts VPP with a heap of the given MB, and the given interval between figures in
// its statistics segment.
func startVPPWith(t *testing.T, heap int, every float64) *vpp {
	binary := os.Getenv("SLUICE_VPP_BIN")
	if binary == "" {
		t.Skip("SLUICE_VPP_BIN does not name a vpp binary")
	}
	v := &vpp{t: t, binary: binary, dir: t.TempDir(), heap: heap, every: every}
	t.Cleanup(v.stop)
	v.start()
	return v
}

func (v *vpp) start() {
	v.t.Helper()
	config := fmt.Sprintf(`unix { nodaemon runtime-dir %[1]s cli-listen %[1]s/cli.sock log %[1]s/vpp.log nocolor poll-sleep-usec 100 }
api-segment { prefix sluice-%[2]d gid root }
socksvr { socket-name %[1]s/api.sock }
statseg { socket-name %[1]s/stats.sock size 128M update-interval %[4]g }
memory { main-heap-size %[3]dM }
buffers { buffers-per-numa 4096 page-size default }
physmem { max-size 64m }
plugins { plugin default { disable } plugin acl_plugin.so { enable } }
`, v.dir, os.Getpid(), v.heap, v.every)
	path := filepath.Join(v.dir, "startup.conf")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		v.t.Fatal(err)
	}
	v.process = exec.Command(v.binary, "-c", path)
	v.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // no test that crashes leaves it behind
	if err := v.process.Start(); err != nil {
		v.t.Fatal(err)
	}
	v.await()
}

// await waits until the socket answers.
func (v *vpp) await() {
	ctx, cancel := context.WithTimeout(v.t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if c, err := core.Connect(socketclient.NewVppClient(v.socket())); err == nil {
			c.Disconnect()
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			v.t.Fatal("vpp does not answer")
		}
	}
}

func (v *vpp) stop() {
	if v.process != nil {
		_ = v.process.Process.Signal(syscall.SIGTERM)
		// VPP logs the signal, which waits for itself where that interrupted it in its heap.
		stuck := time.AfterFunc(10*time.Second, func() { _ = v.process.Process.Kill() })
		_ = v.process.Wait()
		stuck.Stop()
		v.process = nil
	}
}

// attach creates one tagged interface for each tag, in order.
func attach(t *testing.T, a adapter.VppAPI, tags []string) {
	t.Helper()
	withConnection(t, a, func(ctx context.Context, c *core.Connection) error {
		client := interfaces.NewServiceClient(c)
		for _, tag := range tags {
			r, err := client.CreateLoopback(ctx, &interfaces.CreateLoopback{})
			if err != nil {
				return err
			}
			if _, err := client.SwInterfaceTagAddDel(ctx, &interfaces.SwInterfaceTagAddDel{IsAdd: true, SwIfIndex: r.SwIfIndex, Tag: tag}); err != nil {
				return err
			}
		}
		return nil
	})
}

func withConnection(t *testing.T, a adapter.VppAPI, f func(context.Context, *core.Connection) error) {
	t.Helper()
	c, err := core.Connect(a)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Disconnect()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := f(ctx, c); err != nil {
		t.Fatal(err)
	}
}

// contents returns the rules that each tagged interface applies, in order, optionally with the
// index of their ACL.
func contents(t *testing.T, a adapter.VppAPI, indexes bool) map[string][]string {
	t.Helper()
	out := make(map[string][]string)
	withConnection(t, a, func(ctx context.Context, c *core.Connection) error {
		acls := make(map[uint32]*acl.ACLDetails)
		dump, err := acl.NewServiceClient(c).ACLDump(ctx, &acl.ACLDump{ACLIndex: ^uint32(0)})
		if err := each(dump, err, func(d *acl.ACLDetails) { acls[d.ACLIndex] = d }); err != nil {
			return err
		}
		tags := make(map[uint32]string)
		ifs, err := interfaces.NewServiceClient(c).SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
		if err := each(ifs, err, func(d *interfaces.SwInterfaceDetails) { tags[uint32(d.SwIfIndex)] = d.Tag }); err != nil {
			return err
		}
		lists, err := acl.NewServiceClient(c).ACLInterfaceListDump(ctx, &acl.ACLInterfaceListDump{SwIfIndex: ^interface_types.InterfaceIndex(0)})
		return each(lists, err, func(d *acl.ACLInterfaceListDetails) {
			for i, index := range d.Acls {
				direction := "out"
				if i < int(d.NInput) {
					direction = "in"
				}
				slot := strings.Split(acls[index].Tag, ":")[1]
				if indexes {
					slot = fmt.Sprint(index, " ", slot)
				}
				for _, r := range acls[index].R {
					out[tags[uint32(d.SwIfIndex)]] = append(out[tags[uint32(d.SwIfIndex)]], fmt.Sprint(direction, " ", slot, " ", r))
				}
			}
		})
	})
	return out
}

func each[M any, S interface{ Recv() (M, error) }](s S, err error, f func(M)) error {
	for err == nil {
		var m M
		if m, err = s.Recv(); err == nil {
			f(m)
		}
	}
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// states are commits that use all features of the renderer.
var states = []struct {
	name   string
	resync bool
	fill   func(*renderer.Changes)
}{
	{"a resync", true, shop},
	{"members join and leave", false, func(x *renderer.Changes) {
		x.UpdateSet(clients, []netip.Prefix{host("10.9.0.2"), host("10.9.0.3"), host("fd09::1")}, []netip.Prefix{host("10.9.0.1")})
	}},
	{"a pod gets another table", false, func(x *renderer.Changes) {
		x.Render(pod("web-0"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.1"), addr("fd00::1")}, Egress: list(
			from(api.SetNet(clients), 80), api.ContivRule{Action: api.Permit, Protocol: api.SCTP, DstPort: api.Port(3868)})})
	}},
	{"a pod goes", false, func(x *renderer.Changes) { x.Remove(pod("db")) }},
	{"the same pod returns with other rules", false, func(x *renderer.Changes) {
		x.Render(pod("db"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.3")}, Ingress: list(), Egress: list()})
	}},
	{"everything is open", true, func(x *renderer.Changes) {
		x.Render(pod("open"), renderer.PodConfig{IPs: []netip.Addr{addr("10.0.0.4")}})
	}},
	{"and closed again", true, shop},
}

func TestRealVPPHoldsWhatEmbeddedVswitchHolds(t *testing.T) {
	v := startVPP(t)
	sw := vswitch.New(vswitch.Options{LikeVPP: true})
	defer func() { _ = sw.Close() }()
	tags := []string{sluiceacl.UplinkTag}
	for _, p := range shopPods {
		tags = append(tags, sluiceacl.InterfaceTag(p))
	}
	real := func() adapter.VppAPI { return socketclient.NewVppClient(v.socket()) }
	attach(t, sw.Adapter(), tags)
	attach(t, real(), tags)

	wake := make(chan struct{}, 1)
	open := func(o sluiceacl.Options) *sluiceacl.Renderer {
		r, err := sluiceacl.New(o)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	embedded := open(sluiceacl.Options{Adapter: sw.Adapter()})
	defer func() { _ = embedded.Close() }()
	onVPP := sluiceacl.Options{Socket: v.socket(), OnChange: func() {
		select {
		case wake <- struct{}{}:
		default:
		}
	}}
	r := open(onVPP)
	defer func() { _ = r.Close() }()

	for _, s := range states {
		commit(t, embedded, s.resync, s.fill)
		commit(t, r, s.resync, s.fill)
		if d := cmp.Diff(contents(t, sw.Adapter(), false), contents(t, real(), false)); d != "" {
			t.Fatalf("%s (-embedded +vpp):\n%s", s.name, d)
		}
	}

	t.Run("a restart of the renderer changes nothing", func(t *testing.T) {
		before := contents(t, real(), true)
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		r = open(onVPP)
		commit(t, r, true, shop)
		if d := cmp.Diff(before, contents(t, real(), true)); d != "" {
			t.Error(d)
		}
		t.Logf("tested with vpp %s", r.State().Version)
	})

	t.Run("a restart of VPP is repaired by an empty commit", func(t *testing.T) {
		want := contents(t, real(), false)
		v.stop()
		v.start()
		attach(t, real(), tags)
		began := time.Now()
		for len(contents(t, real(), false)) == 0 {
			select {
			case <-wake:
				if err := try(t, r, false, nothing); err != nil {
					t.Log(err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("nobody noticed the restart")
			}
		}
		t.Logf("enforced again %v after the interfaces were there", time.Since(began))
		if d := cmp.Diff(want, contents(t, real(), false)); d != "" {
			t.Error(d)
		}
	})
}

// usedHeap returns the used part of the main heap, in MB.
func usedHeap(t *testing.T, a adapter.VppAPI) (used float64) {
	withConnection(t, a, func(ctx context.Context, c *core.Connection) error {
		r, err := vlib.NewServiceClient(c).CliInband(ctx, &vlib.CliInband{Cmd: "show memory main-heap"})
		if err != nil {
			return err
		}
		_, text, _ := strings.Cut(r.Reply, "used: ")
		var unit rune
		if _, err := fmt.Sscanf(text, "%f%c", &used, &unit); err != nil {
			t.Fatalf("%v in %q", err, r.Reply)
		}
		if unit == 'G' {
			used *= 1024
		}
		return nil
	})
	return used
}
