package acl_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/socketclient"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// heapTest is a VPP with pod interfaces, and a renderer that reads its statistics segment.
type heapTest struct {
	*vpp
	r    *sluiceacl.Renderer
	pods []api.PodID
}

func startHeapTest(t *testing.T, heap int, every float64, pods int) *heapTest {
	x := &heapTest{vpp: startVPPWith(t, heap, every)}
	tags := []string{sluiceacl.UplinkTag}
	for i := range pods {
		x.pods = append(x.pods, benchPod(i))
		tags = append(tags, sluiceacl.InterfaceTag(x.pods[i]))
	}
	attach(t, x.api(), tags)
	r, err := sluiceacl.New(sluiceacl.Options{Socket: x.socket(), Stats: sluiceacl.Stats{Socket: x.statsSocket()}, Timeout: 10 * time.Minute, Audit: -1})
	if err != nil {
		t.Fatal(err)
	}
	x.r = r
	return x
}

func (x *heapTest) api() adapter.VppAPI { return socketclient.NewVppClient(x.socket()) }

// close stops both. VPP must be alive until then.
func (x *heapTest) close() {
	usedHeap(x.t, x.api())
	_ = x.r.Close()
	x.stop()
}

// processState describes the state of the process.
func (x *heapTest) processState() string {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", x.process.Process.Pid))
	if fields := strings.Fields(string(stat)); err == nil && len(fields) > 2 {
		return "in state " + fields[2]
	}
	return "gone"
}

// spaced returns addresses that cannot be merged and have the given distance.
func spaced(n, apart int) (out []netip.Prefix) {
	for i := range n {
		k := uint32(172<<24|16<<16) + uint32(i*apart)
		out = append(out, netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(k >> 24), byte(k >> 16), byte(k >> 8), byte(k)}), 32))
	}
	return out
}

// about renders every pod with a policy about a set. With isolated, one of the members may send to
// no pod.
func (x *heapTest) about(t *renderer.Changes, member netip.Addr, isolated bool) {
	for i, p := range x.pods {
		t.Render(p, renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}, Egress: list(from(api.SetNet(throng), 80))})
	}
	peer := renderer.PodConfig{IPs: []netip.Addr{member}}
	if isolated {
		peer.Ingress = list()
	}
	t.Render(x.pods[0], peer)
}

// TestRealVPPMemoryOfEntries measures the heap use of entries when they are installed, and when an
// entry in front of them makes VPP change all their hash keys. It must never exceed the forecast.
func TestRealVPPMemoryOfEntries(t *testing.T) {
	for _, n := range []struct{ pods, members, apart int }{{20, 5000, 2}, {95, 1000, 257}, {95, 10_000, 2}, {95, 10_000, 257}} {
		t.Run(fmt.Sprintf("%dx%dx%d", n.pods-1, n.members, n.apart), func(t *testing.T) {
			x := startHeapTest(t, 2048, 0.1, n.pods)
			defer x.close()
			member := spaced(2, n.apart)[1].Addr()
			commit(t, x.r, true, func(r *renderer.Changes) { x.about(r, member, false) })
			base := usedHeap(t, x.api())
			needed, applied := 0.0, float64((n.pods-1)*n.members)
			for _, step := range []struct {
				name string
				fill func(*renderer.Changes)
			}{
				{"filled", func(r *renderer.Changes) { r.UpdateSet(throng, spaced(n.members, n.apart), nil) }},
				{"one member is isolated", func(r *renderer.Changes) { x.about(r, member, true) }},
				{"and no more", func(r *renderer.Changes) { x.about(r, member, false) }},
				{"emptied", func(r *renderer.Changes) { r.UpdateSet(throng, nil, spaced(n.members, n.apart)) }},
				{"filled again", func(r *renderer.Changes) { r.UpdateSet(throng, spaced(n.members, n.apart), nil) }},
			} {
				if step.name == "filled again" && n.members > 5000 {
					continue // far above the ceiling: what VPP keeps may be taken for others' memory, and refused
				}
				began := time.Now()
				needed = max(needed, x.carryOut(t, step.fill)) // VPP keeps memory
				took, used := time.Since(began), usedHeap(t, x.api())
				t.Logf("%-22s %6.1f MB, %3.0f B an entry and interface, taken for %6.1f MB, in %v",
					step.name, used-base, (used-base)*(1<<20)/applied, needed, took.Round(time.Millisecond))
				if used-base > needed+1 {
					t.Errorf("%s: entries take %.1f MB, at most %.1f MB were forecast", step.name, used-base, needed)
				}
			}
		})
	}
}

// carryOut commits, and returns the forecast for the worst moment in MB.
func (x *heapTest) carryOut(t *testing.T, fill func(*renderer.Changes)) (needed float64) {
	t.Helper()
	if err := try(t, x.r, false, fill); err != nil {
		t.Fatal(err)
	}
	return float64(x.r.State().Memory.Needed) / (1 << 20)
}

// TestRealVPPHeapIsReadFromStatistics reads VPP's heap size and use without its command line.
func TestRealVPPHeapIsReadFromStatistics(t *testing.T) {
	x := startHeapTest(t, 512, 0.1, 4)
	defer x.close()
	for began, n := time.Now(), 0; ; n++ { // the first figures may not include the session table
		commit(t, x.r, n == 0, func(r *renderer.Changes) { x.about(r, addr("172.16.0.4"), n%2 == 1) })
		// A quarter of the heap is reserved for sessions.
		got, left := float64(x.r.State().Memory.Budget)/(1<<20), 512*3/4-usedHeap(t, x.api())
		if math.Abs(got-left) <= 16 {
			return
		}
		if time.Since(began) > time.Minute {
			t.Fatalf("%.0f MB may be taken, want about %.0f", got, left)
		}
		time.Sleep(100 * time.Millisecond) // a figure is made meanwhile
	}
}

// TestRealVPPReusesKeptMemory removes a large set, whose memory VPP keeps, and adds it again.
func TestRealVPPReusesKeptMemory(t *testing.T) {
	x := startHeapTest(t, 800, 0.1, 95)
	defer x.close()
	commit(t, x.r, true, func(r *renderer.Changes) { x.about(r, addr("172.16.0.4"), false) })
	for range 3 {
		commit(t, x.r, false, func(r *renderer.Changes) { r.UpdateSet(throng, spaced(3_000, 257), nil) })
		time.Sleep(300 * time.Millisecond) // figures are made meanwhile
		commit(t, x.r, false, func(r *renderer.Changes) { r.UpdateSet(throng, nil, spaced(3_000, 257)) })
		time.Sleep(300 * time.Millisecond)
	}
}

// TestRealVPPSurvivesOneMorePolicy fills most of a 512 MB heap with a policy of 94 pods about 10
// 000 peers. Then a policy isolates one of these peers, which makes VPP apply everything again.
// Either change may be refused.
func TestRealVPPSurvivesOneMorePolicy(t *testing.T) {
	x := startHeapTest(t, 512, 10, 95)
	defer x.close()
	member := spaced(2, 257)[1].Addr()
	for n, step := range []func(*renderer.Changes){
		func(r *renderer.Changes) { x.about(r, member, false) },
		func(r *renderer.Changes) { r.UpdateSet(throng, spaced(10_000, 257), nil) },
		func(r *renderer.Changes) { x.about(r, member, true) },
	} {
		err := try(t, x.r, n == 0, step)
		if err != nil && !errors.Is(err, sluiceacl.ErrTooLarge) {
			t.Fatalf("step %d: %v; vpp is %s", n, err, x.processState())
		}
		t.Logf("step %d: %.0f MB are used (%v)", n, usedHeap(t, x.api()), err)
	}
}

// TestRealVPPNeverAborts makes random plans on VPPs with heaps of 256 MB to 2 GB: sets of all sizes
// and distances, and policies whose members, pods and ports change at any time. Part of a plan may
// be refused, but VPP must survive. SLUICE_VPP_PLANS sets the number of plans.
func TestRealVPPNeverAborts(t *testing.T) {
	plans := renderertest.Extent(10, 60, 1000)
	if n, err := strconv.Atoi(os.Getenv("SLUICE_VPP_PLANS")); err == nil {
		plans = n
	}
	seed := uint64(time.Now().UnixNano())
	if n, err := strconv.ParseUint(os.Getenv("SLUICE_VPP_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("SLUICE_VPP_SEED=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	total, refused := 0, 0
	for total < plans {
		heap := []int{256, 256, 384, 384, 512, 512, 1024, 2048}[random.IntN(8)]
		every := []float64{10, 1, 0.1}[random.IntN(3)]
		x := startHeapTest(t, heap, every, []int{2 + random.IntN(99), 60 + random.IntN(41)}[random.IntN(2)])
		most := heap << 20 / 250 / len(x.pods) // members, so that some plans fit
		t.Logf("plan %d: a heap of %d MB, figures every %v s, %d pods, up to %d members", total, heap, every, len(x.pods), most)
		held := make(map[api.SetID][]netip.Prefix)
		for n := range min(20, plans-total) {
			err := try(t, x.r, n == 0, func(r *renderer.Changes) { x.randomChange(r, random, held, min(30_000, most)) })
			switch {
			case errors.Is(err, sluiceacl.ErrTooLarge):
				refused++
			case err != nil:
				t.Fatalf("plan %d: %v; vpp is %s", total, err, x.processState())
			}
			total++
		}
		x.close()
	}
	t.Logf("%d plans, %d of them refused in part, no abort", total, refused)
}

// randomChange changes sets and pods at random.
func (x *heapTest) randomChange(r *renderer.Changes, random *rand.Rand, held map[api.SetID][]netip.Prefix, most int) {
	sets := []api.SetID{101, 102, 103}
	for _, id := range sets {
		if len(held[id]) > 0 && random.IntN(2) == 0 {
			continue
		}
		n := int(math.Pow(float64(most), random.Float64()))
		if random.IntN(2) == 0 {
			n = most/2 + random.IntN(most/2)
		}
		next := spaced(n, []int{2, 3, 257, 771}[random.IntN(4)])
		was := make(map[netip.Prefix]bool, len(next))
		for _, p := range next {
			was[p] = true
		}
		r.UpdateSet(id, next, slices.DeleteFunc(slices.Clone(held[id]), func(p netip.Prefix) bool { return was[p] }))
		held[id] = next
	}
	if random.IntN(3) == 0 {
		return
	}
	id, port, share := sets[random.IntN(3)], []uint16{80, 443}[random.IntN(2)], random.IntN(len(x.pods)+1)
	if random.IntN(2) == 0 {
		share = len(x.pods)
	}
	for i, p := range x.pods {
		if random.IntN(8) == 0 {
			continue // unchanged
		}
		c := renderer.PodConfig{IPs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})}}
		if i < share {
			c.Egress = list(from(api.SetNet(id), port))
		}
		if i == 0 {
			c.IPs = []netip.Addr{spaced(6, 2)[random.IntN(6)].Addr()}
		}
		if random.IntN(len(x.pods)) == 0 {
			c.Ingress = list(to(api.SetNet(sets[random.IntN(3)]), port))
		}
		r.Render(p, c)
	}
}
