package cluster

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Step is a state and what led to it.
type Step struct {
	What  string // in words, for failing tests
	State State
}

// sequence draws a start and steps from it.
func (b builder) sequence(steps int) []Step {
	out := []Step{{What: "start", State: b.state()}}
	for range steps {
		out = append(out, b.step(out[len(out)-1].State))
	}
	return out
}

// step changes one thing, or for a namespace everything in it.
func (b builder) step(from State) Step {
	next := State{Namespaces: slices.Clone(from.Namespaces), Pods: slices.Clone(from.Pods),
		Policies: slices.Clone(from.Policies), Nodes: from.Nodes}
	steps := []func(*State) string{
		b.relabelPod, b.deletePod, b.addPod, b.movePod, b.finishPod, b.terminatePod, b.reusePodAddress, b.startPod,
		b.relabelNamespace, b.deleteNamespace, b.addNamespace, b.forgetNamespace,
		b.addPolicy, b.deletePolicy, b.editPolicy, b.editPolicy,
	}
	what := pick(b, steps, "step")(&next)
	if what == "" {
		what = "nothing"
	}
	return Step{What: what, State: next}
}

// changePod replaces a random pod by a changed copy.
func (b builder) changePod(s *State, verb string, change func(*corev1.Pod)) string {
	if len(s.Pods) == 0 {
		return ""
	}
	i := b.below(len(s.Pods), "pod")
	p := s.Pods[i].DeepCopy()
	change(p)
	s.Pods[i] = p
	return describe(verb, p.Namespace, p.Name)
}

func (b builder) relabelPod(s *State) string {
	return b.changePod(s, "relabel pod", func(p *corev1.Pod) { p.Labels = b.labels(podLabels) })
}

func (b builder) finishPod(s *State) string {
	return b.changePod(s, "finish pod", func(p *corev1.Pod) {
		p.Status.Phase = pick(b, []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, "end")
	})
}

func (b builder) terminatePod(s *State) string {
	return b.changePod(s, "terminate pod", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} })
}

// startPod gives a pod that waits for one an address.
func (b builder) startPod(s *State) string {
	waits := func(p *corev1.Pod) bool { return holds(p) && len(p.Status.PodIPs) == 0 }
	i := slices.IndexFunc(s.Pods, waits)
	if i < 0 {
		return b.addPod(s)
	}
	p := s.Pods[i].DeepCopy()
	b.address(p, addressesOf(s.Pods))
	p.Status.Phase = corev1.PodRunning
	s.Pods[i] = p
	return describe("start pod", p.Namespace, p.Name)
}

func (b builder) deletePod(s *State) string {
	if len(s.Pods) == 0 {
		return ""
	}
	i := b.below(len(s.Pods), "pod")
	p := s.Pods[i]
	s.Pods = slices.Delete(s.Pods, i, i+1)
	return describe("delete pod", p.Namespace, p.Name)
}

func (b builder) addPod(s *State) string {
	namespace := b.anyNamespace()
	p := b.pod(namespace, freePodName(*s, namespace), addressesOf(s.Pods))
	s.Pods = append(s.Pods, p)
	return describe("add pod", p.Namespace, p.Name)
}

// movePod deletes a pod and adds one of its name elsewhere, with another
// address, other labels and other ports.
func (b builder) movePod(s *State) string {
	if len(s.Pods) == 0 {
		return ""
	}
	i := b.below(len(s.Pods), "pod")
	old := s.Pods[i]
	used := addressesOf(s.Pods)
	s.Pods[i] = b.pod(old.Namespace, old.Name, used)
	return describe("move pod", old.Namespace, old.Name)
}

// reusePodAddress deletes a pod and gives its addresses to a new one.
func (b builder) reusePodAddress(s *State) string {
	candidates := slices.DeleteFunc(slices.Clone(s.Pods), func(p *corev1.Pod) bool {
		return !holds(p) || len(p.Status.PodIPs) == 0
	})
	if len(candidates) == 0 {
		return ""
	}
	old := pick(b, candidates, "pod")
	s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p == old })
	namespace := b.anyNamespace()
	p := b.pod(namespace, freePodName(*s, namespace), addressesOf(s.Pods))
	p.Spec.HostNetwork, p.Status.Phase = false, corev1.PodRunning
	p.Status.PodIP, p.Status.PodIPs = old.Status.PodIP, slices.Clone(old.Status.PodIPs)
	s.Pods = append(s.Pods, p)
	return describe("reuse the address of", old.Namespace, old.Name, "for", p.Namespace+"/"+p.Name)
}

func (b builder) relabelNamespace(s *State) string {
	if len(s.Namespaces) == 0 {
		return b.addNamespace(s)
	}
	i := b.below(len(s.Namespaces), "namespace")
	s.Namespaces[i] = b.namespace(s.Namespaces[i].Name)
	return "relabel namespace " + s.Namespaces[i].Name
}

// deleteNamespace deletes a namespace with everything in it.
func (b builder) deleteNamespace(s *State) string {
	name := b.anyNamespace()
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	s.Pods = slices.DeleteFunc(s.Pods, func(p *corev1.Pod) bool { return p.Namespace == name })
	s.Policies = slices.DeleteFunc(s.Policies, func(p *networkingv1.NetworkPolicy) bool { return p.Namespace == name })
	return "delete namespace " + name
}

// forgetNamespace takes away the object of a namespace only, as an agent sees it
// that hears of it first.
func (b builder) forgetNamespace(s *State) string {
	name := b.anyNamespace()
	s.Namespaces = slices.DeleteFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name })
	return "forget namespace " + name
}

// addNamespace adds a namespace that is missing, or else a pod to one.
func (b builder) addNamespace(s *State) string {
	for i := range b.cfg.Namespaces {
		name := namespaceName(i)
		if !slices.ContainsFunc(s.Namespaces, func(n *corev1.Namespace) bool { return n.Name == name }) {
			s.Namespaces = append(s.Namespaces, b.namespace(name))
			return "add namespace " + name
		}
	}
	return b.addPod(s)
}

func (b builder) addPolicy(s *State) string {
	namespace := b.anyNamespace()
	np := b.policy(namespace, freePolicyName(*s, namespace))
	s.Policies = append(s.Policies, np)
	return describe("add policy", np.Namespace, np.Name)
}

func (b builder) deletePolicy(s *State) string {
	if len(s.Policies) == 0 {
		return ""
	}
	i := b.below(len(s.Policies), "policy")
	np := s.Policies[i]
	s.Policies = slices.Delete(s.Policies, i, i+1)
	return describe("delete policy", np.Namespace, np.Name)
}

// editPolicy changes one part of a policy.
func (b builder) editPolicy(s *State) string {
	if len(s.Policies) == 0 {
		return b.addPolicy(s)
	}
	i := b.below(len(s.Policies), "policy")
	np := s.Policies[i].DeepCopy()
	fresh := b.policy(np.Namespace, np.Name)
	part := b.below(4, "part of policy")
	switch part {
	case 0:
		np.Spec.PodSelector = fresh.Spec.PodSelector
	case 1:
		np.Spec.PolicyTypes = fresh.Spec.PolicyTypes
	case 2:
		np.Spec.Ingress = fresh.Spec.Ingress
	case 3:
		np.Spec.Egress = fresh.Spec.Egress
	}
	s.Policies[i] = np
	return describe("edit policy", np.Namespace, np.Name, []string{"podSelector", "policyTypes", "ingress", "egress"}[part])
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

func freePolicyName(s State, namespace string) string {
	taken := map[string]bool{}
	for _, p := range s.Policies {
		taken[p.Name] = taken[p.Name] || p.Namespace == namespace
	}
	return freeName("np-%d", taken)
}

func freeName(format string, taken map[string]bool) string {
	for i := 0; ; i++ {
		if name := fmt.Sprintf(format, i); !taken[name] {
			return name
		}
	}
}
