package acl

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// PodIdentity is by what the state knows a pod of the node. Another pod of that name has another
// UID.
type PodIdentity struct {
	UID string       // empty: not known
	IPs []netip.Addr // none before the API server has some
}

// PodIdentities brings together what the state says of pods of the node, and for whom sluice-cni
// made interfaces. The methods of a *Lives may be called by any goroutine; its zero value is ready.
type PodIdentities struct {
	mu   sync.RWMutex
	pods map[api.PodID]PodIdentity
}

// Identify says which pods of the node the state knows, beside those that it said before or, with
// all, only these; nil for one that is gone. It is told before policy knows them so, and reports
// whether the interfaces of VPP are to be looked at again.
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

// Refuses returns why rules of a pod are not for an interface that has its tag, empty if they are:
// it was made for another life of the pod.
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

// Registered returns the addresses with which interfaces were made, of pods that the state knows.
// Policy uses them until the state has some, see policy.Deps.
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
