package guides

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// stageEnv has the script that this process runs, as the first of namespaces of its own.
const stageEnv = "SLUICE_GUIDE_SCRIPT"

// hosts are the addresses at which the guides have etcd.
var hosts = []string{"10.0.0.1", "10.0.0.2", "10.0.0.3"}

func TestMain(m *testing.M) {
	if script := os.Getenv(stageEnv); script != "" {
		if err := stage(script); err != nil {
			fmt.Fprintln(os.Stderr, "stage:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(programs.Main(m))
}

// onStage is a process that runs a script on a node of its own: as the first process of new
// namespaces of processes, of the network and of mounts, with an etcd at the addresses of the
// guides, which has the shop, and the embedded vswitch at VPP's socket. All processes end with it.
func onStage(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "/proc/self/exe")
	cmd.Env = append(os.Environ(), stageEnv+"="+script)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID}
	return cmd
}

// stage prepares the node and runs the script, whose end is its own.
func stage(script string) error {
	if err := errors.Join(mounts(), addresses()); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	store, err := embedded.Start(ctx, embedded.Config{ClientURL: "http://127.0.0.1:2379", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer func() { _ = store.Close() }() // the node ends
	for _, h := range hosts {
		if err := forward(h+":2379", "127.0.0.1:2379"); err != nil {
			return err
		}
	}
	if err := serveVswitch(ctx, "/run/vpp/api.sock"); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "bin/sluicectl", "apply", "-f", "docs/examples/shop", "--etcd-endpoints", hosts[0]+":2379").CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// mounts gives the node empty folders where programs keep what they know of it, and an /etc of its
// own with the settings of an installed agent.
func mounts() error {
	if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	for folder, kind := range map[string]string{"/run": "tmpfs", "/var/lib": "tmpfs", "/proc": "proc", "/sys/fs/bpf": "bpf"} {
		if err := unix.Mount(kind, folder, kind, 0, ""); err != nil && kind != "bpf" { // a kernel may have none
			return fmt.Errorf("mount %s: %w", folder, err)
		}
	}
	if out, err := exec.CommandContext(context.Background(), "bash", "-c", etc).CombinedOutput(); err != nil {
		return fmt.Errorf("/etc: %w: %s", err, out)
	}
	return os.MkdirAll("/run/vpp", 0o750)
}

const etc = `set -e
cp -a /etc /run/etc
mkdir -p /run/etc/sluice
cp deploy/systemd/agent.yaml /run/etc/sluice/
mount --bind /run/etc /etc`

// addresses gives the loopback those of the guides.
func addresses() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return err
	}
	errs := []error{netlink.LinkSetUp(lo)}
	for _, h := range hosts {
		addr, err := netlink.ParseAddr(h + "/32")
		errs = append(errs, err, netlink.AddrAdd(lo, addr))
	}
	return errors.Join(errs...)
}

// forward connects whoever connects to one address with another one, until the process ends. An
// etcd without certificates listens on loopback only.
func forward(from, to string) error {
	l, err := net.Listen("tcp", from)
	if err != nil {
		return err
	}
	go func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				_ = in.Close() // which the client notices
				continue
			}
			both := func(to, from net.Conn) {
				_, _ = io.Copy(to, from) // ends with either connection
				_ = errors.Join(to.Close(), from.Close())
			}
			go both(in, out)
			go both(out, in)
		}
	}()
	return nil
}

// serveVswitch serves the embedded vswitch at a socket until the process ends, with an uplink and
// the interfaces of the shop's pods.
func serveVswitch(ctx context.Context, socket string) error {
	sw := vswitch.New(vswitch.Options{})
	sw.AddInterface("uplink0", acl.UplinkTag)
	shop, err := manifests.LoadFiles([]string{"docs/examples/shop"}, nil)
	if err != nil {
		return err
	}
	for i, o := range shop.Objects {
		if pod, ok := o.Object.(*corev1.Pod); ok {
			sw.AddInterface(fmt.Sprint("tap", i), acl.InterfaceTag(api.PodID{Namespace: pod.Namespace, Name: pod.Name}))
		}
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() { _ = sw.Serve(ctx, l) }() // clients notice the end
	return nil
}

// clone copies the files of the project that git knows, as they are now, and puts the programs into
// its bin folder, as "make build" does.
func clone(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "HEAD").Run(); err != nil {
		t.Skip("git does not know the files of the project")
	}
	copying := `git -C "$1" ls-files -z -- docs deploy docker | tar -C "$1" --null -T - -cf - | tar -C "$2" -xf - && mkdir "$2/bin" && cp "$3"/* "$2/bin/"`
	if out, err := exec.CommandContext(t.Context(), "bash", "-c", "set -o pipefail; "+copying, "clone", root, to, filepath.Dir(programs.Path("sluicectl"))).CombinedOutput(); err != nil {
		t.Fatalf("copy the project: %v\n%s", err, out)
	}
	return to
}
