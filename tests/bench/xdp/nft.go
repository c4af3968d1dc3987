package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/xdp"
)

// nftables is in the place of a program in the table of designs.
const nftables = "nftables"

// errNoNFT says that there is nothing to measure.
var errNoNFT = errors.New("no nft")

// injected is how many packets go into the network at once: few calls, because each takes a while
// before it begins.
const injected = 1 << 17

// measureNFT returns what a packet takes where a rule of nftables looks its source up in a set, and
// compares its port, and where a chain drops it at once. Both drop everything, at the
// ingress of a device: there is no table of connections, and no way through the host.
func measureNFT(c *ebpf.Collection, peers []netip.Prefix, mode string, reps int) (now took, used uint64, err error) {
	path, err := exec.LookPath("nft")
	if err != nil {
		return took{}, 0, errNoNFT
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the namespace is gone with the thread
		now, used, err = nftRun{c, path, peers}.inside(mode, reps)
	}()
	<-done
	return now, used, err
}

type nftRun struct {
	c     *ebpf.Collection
	path  string
	peers []netip.Prefix
}

func (r nftRun) inside(mode string, reps int) (now took, used uint64, err error) {
	space, err := netns.New()
	if err != nil {
		return took{}, 0, err
	}
	defer func() { _ = space.Close() }() // nothing is lost
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "in"}, PeerName: "peer"}); err != nil {
		return took{}, 0, err
	}
	index := map[string]int{}
	for _, name := range []string{"in", "peer"} {
		l, err := netlink.LinkByName(name)
		if err != nil {
			return took{}, 0, err
		}
		if err := netlink.LinkSetUp(l); err != nil {
			return took{}, 0, err
		}
		index[name] = l.Attrs().Index
	}
	if err := table65536(r.c.Maps[ip4.flows], ip4.rows(flows(r.peers, mode, rand.New(rand.NewPCG(1, 2))))); err != nil {
		return took{}, 0, err
	}
	if used, err = r.memory(); err != nil {
		return took{}, 0, err
	}
	best := map[string]time.Duration{"in": time.Hour, "peer": time.Hour}
	for range reps {
		for name := range best {
			d, err := r.inject(index[name])
			if err != nil {
				return took{}, 0, err
			}
			best[name] = min(best[name], d)
		}
	}
	return took{float64(best["in"]) / injected, float64(best["peer"]) / injected}, used, nil
}

// memory loads the ruleset, and returns how much more memory the kernel has then, in the median of
// some times.
func (r nftRun) memory() (uint64, error) {
	var all []uint64
	for range 5 {
		if err := r.load("flush ruleset\n"); err != nil {
			return 0, err
		}
		before, err := kernelMemory()
		if err != nil {
			return 0, err
		}
		if err := r.rules(); err != nil {
			return 0, err
		}
		now, err := kernelMemory()
		if err != nil {
			return 0, err
		}
		all = append(all, max(now, before)-before)
	}
	slices.Sort(all)
	return all[len(all)/2], nil
}

// kernelMemory is what the kernel has for itself and cannot give back, in bytes.
func kernelMemory() (sum uint64, err error) {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if name != "SUnreclaim" && name != "VmallocUsed" {
			continue
		}
		var kib uint64
		if _, err := fmt.Sscanf(rest, "%d kB", &kib); err != nil {
			return 0, fmt.Errorf("%q: %w", line, err)
		}
		sum += kib << 10
	}
	return sum, nil
}

// rules loads the ruleset: a set with all peers, a device where it is looked at, and one where
// everything is dropped at once.
func (r nftRun) rules() error {
	var elements []string
	flags := ""
	for _, p := range r.peers {
		if !p.IsSingleIP() {
			flags = "flags interval; auto-merge;"
		}
		elements = append(elements, strings.TrimSuffix(p.String(), "/32"))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "flush ruleset\ntable netdev bench {\nset peers { type ipv4_addr; %s elements = { %s } }\n", flags, strings.Join(elements, ", "))
	b.WriteString("chain in { type filter hook ingress device \"in\" priority 0; policy accept;\nip saddr @peers tcp dport 80 drop\ndrop\n}\n")
	b.WriteString("chain peer { type filter hook ingress device \"peer\" priority 0; policy accept;\ndrop\n}\n}\n")
	return r.load(b.String())
}

func (r nftRun) load(rules string) error {
	cmd := exec.Command(r.path, "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft: %w: %.300s", err, out)
	}
	return nil
}

// liveFrames makes the packets of a test run continue as if they had been received.
const liveFrames = 1 << 1

// inject sends packets into the network and returns how long that took of this thread.
func (r nftRun) inject(index int) (time.Duration, error) {
	packet := xdp.Frame(api.Flow{
		Src: netip.AddrFrom4([4]byte{10, 0, 0, 2}), Dst: netip.AddrFrom4([4]byte{10, 255, 0, 1}), Protocol: api.TCP, SrcPort: 1, DstPort: 80,
	}, false)
	ctx := struct{ Data, DataEnd, DataMeta, Ingress, Queue, Egress uint32 }{DataEnd: uint32(len(packet)), Ingress: uint32(index)}
	began := ownTime()
	_, err := r.c.Programs["bench_inject"].Run(&ebpf.RunOptions{Data: packet, Repeat: injected, Flags: liveFrames, Context: ctx})
	return ownTime() - began, err
}

// ownTime is what this thread has run; what others run meanwhile does not count.
func ownTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // the clock is there
	}
	return time.Duration(t.Nano())
}
