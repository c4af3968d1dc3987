package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// PodIdentity is the identity of a pod of the node in the desired state. Another pod with the same
// name has another UID.
type PodIdentity struct {
	UID string       // empty: unknown
	IPs []netip.Addr // empty until the API server reports addresses
}

// PodIdentities matches the pods of the node in the desired state with the pods for which
// sluice-cni made interfaces. Any goroutine may call the methods of a *PodIdentities. The zero
// value is ready to use.
type PodIdentities struct {
	mu   sync.RWMutex
	pods map[api.PodID]PodIdentity
}

// Identify updates the known pods of the node; nil removes a pod. With all, it replaces them. The
// caller calls it before policy uses these pods. changed reports whether the interfaces of VPP must
// be checked again.
func (l *PodIdentities) Identify(pods map[api.PodID]*PodIdentity, all bool) (changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if all || l.pods == nil {
		changed = len(l.pods) > 0
		l.pods = make(map[api.PodID]PodIdentity, len(pods))
	}
	for pod, now := range pods {
		if now == nil {
			delete(l.pods, pod)
			continue
		}
		old, known := l.pods[pod]
		changed = changed || !known || old.UID != now.UID || !slices.Equal(old.IPs, now.IPs)
		l.pods[pod] = *now
	}
	return changed
}

// Refuses returns the reason why an interface with the tag of a pod was made for another
// incarnation of the pod. It returns "" if the interface belongs to the pod.
func (l *PodIdentities) Refuses(pod api.PodID, m vpp.Made) string {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return l.pods[pod].refuses(m)
}

func (p PodIdentity) refuses(m vpp.Made) string {
	switch {
	case p.UID != "" && m.UID != "" && p.UID != m.UID:
		return fmt.Sprintf("policy knows another pod of this name, uid %s: it was made for uid %s", p.UID, m.UID)
	case len(p.IPs) > 0 && len(m.IPs) > 0 && !slices.ContainsFunc(m.IPs, func(a netip.Addr) bool { return slices.Contains(p.IPs, a) }):
		return fmt.Sprintf("policy knows its pod by other addresses, %v: it was made with %v", p.IPs, m.IPs)
	}
	return ""
}

// Registered returns the addresses of known pods with which their interfaces were made. Policy uses
// them until the state has addresses; see policy.Deps.
func (l *PodIdentities) Registered(made []vpp.Made) map[api.PodID][]netip.Addr {
	byTag := make(map[string][]vpp.Made, len(made))
	for _, m := range made {
		byTag[m.Tag] = append(byTag[m.Tag], m)
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	out := map[api.PodID][]netip.Addr{}
	if len(made) == 0 {
		return out
	}
	for pod, life := range l.pods {
		for _, m := range byTag[InterfaceTag(pod)] {
			if life.refuses(m) == "" {
				out[pod] = append(out[pod], m.IPs...)
			}
		}
	}
	return out
}
