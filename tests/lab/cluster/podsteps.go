package cluster

import (
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// change replaces a random pod by a changed copy.
func (d podDrawer) change(s *State, verb string, change func(*corev1.Pod)) string {
	if len(s.Pods) == 0 {
		return ""
	}
	i := d.Below(len(s.Pods), "pod")
	p := s.Pods[i].DeepCopy()
	change(p)
	s.Pods[i] = p
	return describe(verb, p.Namespace, p.Name)
}

func (d podDrawer) relabel(s *State) string {
	return d.change(s, "relabel pod", func(p *corev1.Pod) { p.Labels = d.labels(podLabels) })
}

func (d podDrawer) finish(s *State) string {
	return d.change(s, "finish pod", func(p *corev1.Pod) {
		p.Status.Phase = pick(d, []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, "end")
	})
}

func (d podDrawer) terminate(s *State) string {
	return d.change(s, "terminate pod", func(p *corev1.Pod) { p.DeletionTimestamp = deletion() })
}

// start gives a pod that waits for one an address.
func (d podDrawer) start(s *State) string {
	waits := func(p *corev1.Pod) bool { return holds(p) && len(p.Status.PodIPs) == 0 }
	i := slices.IndexFunc(s.Pods, waits)
	if i < 0 {
		return d.add(s)
	}
	p := s.Pods[i].DeepCopy()
	d.address(p, addressesOf(s.Pods))
	p.Status.Phase = corev1.PodRunning
	s.Pods[i] = p
	return describe("start pod", p.Namespace, p.Name)
}

func (d podDrawer) delete(s *State) string {
	if len(s.Pods) == 0 {
		return ""
	}
	i := d.Below(len(s.Pods), "pod")
	p := s.Pods[i]
	s.Pods = slices.Delete(s.Pods, i, i+1)
	return describe("delete pod", p.Namespace, p.Name)
}

func (d podDrawer) add(s *State) string {
	namespace := d.anyNamespace()
	p := d.pod(s, namespace, freePodName(*s, namespace), addressesOf(s.Pods))
	s.Pods = append(s.Pods, p)
	return describe("add pod", p.Namespace, p.Name)
}

// move deletes a pod and adds one of its name elsewhere, with another
// address, other labels and other ports.
func (d podDrawer) move(s *State) string {
	if len(s.Pods) == 0 {
		return ""
	}
	i := d.Below(len(s.Pods), "pod")
	old := s.Pods[i]
	used := addressesOf(s.Pods)
	s.Pods[i] = d.pod(s, old.Namespace, old.Name, used)
	return describe("move pod", old.Namespace, old.Name)
}

// reuseAddress deletes a pod and gives its addresses to a new one.
func (d podDrawer) reuseAddress(s *State) string {
	holders := holders(s.Pods)
	if len(holders) == 0 {
		return ""
	}
	old := s.Pods[pick(d, holders, "pod")]
	s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p == old })
	namespace := d.anyNamespace()
	p := d.pod(s, namespace, freePodName(*s, namespace), addressesOf(s.Pods))
	p.Spec.HostNetwork, p.Status.Phase = false, corev1.PodRunning
	p.Status.PodIP, p.Status.PodIPs = old.Status.PodIP, slices.Clone(old.Status.PodIPs)
	s.Pods = append(s.Pods, p)
	return describe("reuse the address of", old.Namespace, old.Name, "for", p.Namespace+"/"+p.Name)
}

// readdress gives a pod other addresses.
func (d podDrawer) readdress(s *State) string {
	return d.changeHolder(s, "readdress pod", func(p *corev1.Pod) { d.address(p, addressesOf(s.Pods)) })
}

// changeFamilies takes one of two addresses away, or adds one of the other family.
func (d podDrawer) changeFamilies(s *State) string {
	if !d.cfg.IPv6 {
		return ""
	}
	return d.changeHolder(s, "change families of pod", func(p *corev1.Pod) {
		if len(p.Status.PodIPs) > 1 {
			setAddresses(p, pick(d, p.Status.PodIPs, "address that stays").IP)
			return
		}
		used := addressesOf(s.Pods)
		have := p.Status.PodIPs[0].IP
		other := addr4
		if netip.MustParseAddr(have).Is4() {
			other = addr6
		}
		i := d.Below(d.pool(), "address")
		for used[other(i)] > 0 {
			i++
		}
		setAddresses(p, have, other(i).String())
	})
}

// changePorts gives a pod other containers, as when a pod of the same name replaces it and its
// deletion is not observed.
func (d podDrawer) changePorts(s *State) string {
	return d.change(s, "change ports of pod", func(p *corev1.Pod) {
		p.Spec.Containers, p.Spec.InitContainers = []corev1.Container{d.container("main")}, d.initContainers()
	})
}

// changeHolder is change for a pod that has an address.
func (d podDrawer) changeHolder(s *State, verb string, change func(*corev1.Pod)) string {
	holders := holders(s.Pods)
	if len(holders) == 0 {
		return ""
	}
	i := pick(d, holders, "pod")
	p := s.Pods[i].DeepCopy()
	change(p)
	s.Pods[i] = p
	return describe(verb, p.Namespace, p.Name)
}

// holders returns the indexes of the pods that have an address of their own.
func holders(pods []*corev1.Pod) []int {
	var out []int
	for i, p := range pods {
		if holds(p) && len(p.Status.PodIPs) > 0 {
			out = append(out, i)
		}
	}
	return out
}

// swapAddresses exchanges the addresses of two pods.
func (d podDrawer) swapAddresses(s *State) string {
	holders := holders(s.Pods)
	if len(holders) < 2 {
		return ""
	}
	i := d.Below(len(holders), "pod")
	j := (i + 1 + d.Below(len(holders)-1, "other pod")) % len(holders)
	p, q := s.Pods[holders[i]].DeepCopy(), s.Pods[holders[j]].DeepCopy()
	p.Status.PodIP, q.Status.PodIP = q.Status.PodIP, p.Status.PodIP
	p.Status.PodIPs, q.Status.PodIPs = q.Status.PodIPs, p.Status.PodIPs
	s.Pods[holders[i]], s.Pods[holders[j]] = p, q
	return describe("swap addresses of", p.Namespace, p.Name, "and", q.Namespace+"/"+q.Name)
}

// freePodName returns the first name of the universe that is not taken, so that
// names are used again.
func freePodName(s State, namespace string) string {
	taken := map[string]bool{}
	for _, p := range s.Pods {
		taken[p.Name] = taken[p.Name] || p.Namespace == namespace
	}
	return freeName("pod-%d", taken)
}
