package session

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Explain implements renderer.Explainer: the decisions of the tables that a connection attempt
// meets, as the last Commit without an error installed them.
func (r *Renderer) Explain(f api.Flow) []renderer.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return renderer.Signed(r.Name(), r.cache.Evaluate(f))
}

// Abstains implements renderer.Abstainer: the host stack has two transports, and decides about
// what applications open, and about what reaches them from beyond the node.
func (r *Renderer) Abstains(f api.Flow) string {
	if f.Protocol != api.TCP && f.Protocol != api.UDP {
		return "the host stack has TCP and UDP only"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	src, local := r.onStack(f.Src)
	dst, _ := r.onStack(f.Dst)
	if src || dst && !local {
		return ""
	}
	return "no application on the host stack sends it, or gets it from beyond the node"
}

// onStack says whether an address is that of a pod that has an application namespace, and whether
// it is that of a pod at all.
func (r *Renderer) onStack(a netip.Addr) (stack, pod bool) {
	for id, own := range r.own {
		if slices.Contains(own, a) {
			_, has := r.namespaces[id]
			stack, pod = stack || has, true
		}
	}
	return stack, pod
}

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.shortfall.Unenforced()
}

// Dump is what the renderer knows of the vswitch, for people.
type Dump struct {
	Version   string `json:"version,omitempty"`
	Connected bool   `json:"connected"`
	Error     string `json:"error,omitempty"` // of the last Commit
	// Open counts the connections that policy no longer permits and whose applications had not
	// closed them when that was looked at last.
	Open   int            `json:"open,omitempty"`
	Pods   []DumpPod      `json:"pods,omitempty"`
	Global *cache.Table   `json:"global,omitempty"`
	Tables []*cache.Table `json:"tables,omitempty"`
}

// DumpPod is an application namespace of a pod.
type DumpPod struct {
	Pod       api.PodID `json:"pod"`
	Namespace uint32    `json:"namespace"`
	Table     string    `json:"table,omitempty"` // none when it may connect to everybody
	Rules     int       `json:"rules"`           // local ones
}

// Dump returns what is known to be installed. It asks nobody.
func (r *Renderer) Dump() Dump {
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.cache.Installed()
	out := Dump{Version: r.version, Connected: r.link.Connected(), Tables: l.Tables, Global: l.Global, Open: r.revoked.left}
	if r.lastErr != nil {
		out.Error = r.lastErr.Error()
	}
	count := map[uint32]int{}
	if r.mirror != nil {
		for s, p := range r.mirror.sections {
			if s.local {
				count[s.namespace] += len(p.rules)
			}
		}
	}
	for pod, namespaces := range r.namespaces {
		for _, namespace := range namespaces {
			d := DumpPod{Pod: pod, Namespace: namespace, Rules: count[namespace]}
			if t := l.Pods[pod]; t != nil {
				d.Table = t.Name()
			}
			out.Pods = append(out.Pods, d)
		}
	}
	slices.SortFunc(out.Pods, func(a, b DumpPod) int { return cmp.Or(a.Pod.Compare(b.Pod), cmp.Compare(a.Namespace, b.Namespace)) })
	return out
}
