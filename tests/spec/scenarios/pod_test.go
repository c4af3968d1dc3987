package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/cockroachdb/datadriven"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api"
)

// pod reads a new pod:
//
//	pod shop/web 10.1.1.2 fd00::2 app=web node=n1 http=8080/TCP 9090/TCP
//	    container=(admin=9000/TCP) sidecar=(mesh=15001/TCP) init=(setup=1/TCP)
//	    phase=Succeeded hostnetwork terminating
func (w *world) pod(l line) error {
	text, err := l.take("namespace/name")
	if err != nil {
		return err
	}
	id, err := api.ParsePodID(text)
	if err != nil {
		return err
	}
	if !w.declared[id.Namespace] {
		return undeclared(id.Namespace)
	}
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: id.Namespace, Name: id.Name, Labels: map[string]string{}}}
	p.Spec.Containers = []corev1.Container{{Name: "main"}}
	if len(w.state.Nodes) == 1 {
		p.Spec.NodeName = w.state.Nodes[0].Name
	}
	for _, a := range l.args {
		if err := podWord(p, a); err != nil {
			return fmt.Errorf("pod %s: %w", id, err)
		}
	}
	if err := errors.Join(w.place(p), w.name(text)); err != nil {
		return fmt.Errorf("pod %s: %w", id, err)
	}
	w.state.Pods = append(w.state.Pods, p)
	return nil
}

// podWord reads one word of a pod.
func podWord(p *corev1.Pod, a datadriven.CmdArg) error {
	if len(a.Vals) == 0 {
		return podFlag(p, a.Key)
	}
	switch a.Key {
	case "container", "sidecar", "init":
		return addContainer(p, a)
	case "node":
		p.Spec.NodeName = a.Vals[0]
		return nil
	case "phase":
		return setPhase(p, a.Vals[0])
	}
	if value, err := one(a); err == nil && strings.Contains(value, "/") {
		return addPort(&p.Spec.Containers[0], a.Key, value)
	}
	return setLabel(p.Labels, a)
}

// podFlag reads a word without a value: an address, a port without a name, or a
// property.
func podFlag(p *corev1.Pod, word string) error {
	if _, err := netip.ParseAddr(word); err == nil {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: word})
		return nil
	}
	switch {
	case word == "hostnetwork":
		p.Spec.HostNetwork = true
	case word == "terminating":
		p.DeletionTimestamp = &metav1.Time{}
	case strings.Contains(word, "/"):
		return addPort(&p.Spec.Containers[0], "", word)
	default:
		return fmt.Errorf("%q is not understood", word)
	}
	return nil
}

// addContainer reads "sidecar=(mesh=15001/TCP, 80/TCP)".
func addContainer(p *corev1.Pod, a datadriven.CmdArg) error {
	c := corev1.Container{Name: fmt.Sprintf("%s-%d", a.Key, len(p.Spec.Containers)+len(p.Spec.InitContainers))}
	for _, text := range a.Vals {
		name, port, named := strings.Cut(text, "=")
		if !named {
			name, port = "", text
		}
		if err := addPort(&c, name, port); err != nil {
			return err
		}
	}
	switch a.Key {
	case "container":
		p.Spec.Containers = append(p.Spec.Containers, c)
	case "sidecar":
		always := corev1.ContainerRestartPolicyAlways
		c.RestartPolicy = &always
		fallthrough
	default:
		p.Spec.InitContainers = append(p.Spec.InitContainers, c)
	}
	return nil
}

// addPort reads a container port: "8080/TCP".
func addPort(c *corev1.Container, name, text string) error {
	number, protocol, _ := strings.Cut(text, "/")
	n, err := parseNumber(number)
	if err != nil {
		return fmt.Errorf("port %q: %w", text, err)
	}
	if !slices.Contains([]string{"TCP", "UDP", "SCTP"}, protocol) {
		return fmt.Errorf("port %q: protocol is none of TCP, UDP, SCTP", text)
	}
	if name != "" && len(validation.IsValidPortName(name)) > 0 {
		return fmt.Errorf("%q cannot be the name of a port", name)
	}
	c.Ports = append(c.Ports, corev1.ContainerPort{Name: name, ContainerPort: int32(n), Protocol: corev1.Protocol(protocol)})
	return nil
}

// setLabel reads "app=web".
func setLabel(labels map[string]string, a datadriven.CmdArg) error {
	value, err := one(a)
	if err != nil {
		return fmt.Errorf("%q is not a label", a.String())
	}
	if problems := append(validation.IsQualifiedName(a.Key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
		return fmt.Errorf("%q is not a label: %s", a.String(), strings.Join(problems, ", "))
	}
	labels[a.Key] = value
	return nil
}

func setPhase(p *corev1.Pod, phase string) error {
	known := []corev1.PodPhase{corev1.PodPending, corev1.PodRunning, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown}
	if !slices.Contains(known, corev1.PodPhase(phase)) {
		return fmt.Errorf("phase %q is none of %v", phase, known)
	}
	p.Status.Phase = corev1.PodPhase(phase)
	return nil
}

// place fills in what a node says about its pods.
func (w *world) place(p *corev1.Pod) error {
	i := slices.IndexFunc(w.state.Nodes, func(n *corev1.Node) bool { return n.Name == p.Spec.NodeName })
	if i < 0 {
		return fmt.Errorf("want node=NAME with a node that is there, not %q", p.Spec.NodeName)
	}
	p.Status.HostIPs = nil
	for _, a := range w.state.Nodes[i].Status.Addresses {
		p.Status.HostIPs = append(p.Status.HostIPs, corev1.HostIP{IP: a.Address})
		if p.Spec.HostNetwork {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.Address})
		}
	}
	p.Status.HostIP = p.Status.HostIPs[0].IP
	if p.Status.Phase == "" {
		p.Status.Phase = corev1.PodPending
		if len(p.Status.PodIPs) > 0 {
			p.Status.Phase = corev1.PodRunning
		}
	}
	if len(p.Status.PodIPs) > 0 {
		p.Status.PodIP = p.Status.PodIPs[0].IP
	}
	return nil
}

// edit replaces a pod, named by the next word, by a changed copy.
func (w *world) edit(l *line, change func(*corev1.Pod) error) error {
	name, err := l.take("namespace/name of a pod")
	if err != nil {
		return err
	}
	i := podIndex(w.state, name)
	if i < 0 {
		return fmt.Errorf("there is no pod %s", name)
	}
	p := w.state.Pods[i].DeepCopy()
	if err := change(p); err != nil {
		return fmt.Errorf("pod %s: %w", name, err)
	}
	w.state.Pods[i] = p
	return l.end()
}

// label reads "label pod shop/web app=web role-", "label namespace shop team=b" and
// "label node n1 zone=a".
func (w *world) label(l line) error {
	kind, err := l.take("pod, namespace or node")
	if err != nil {
		return err
	}
	switch kind {
	case "pod":
		return w.edit(&l, func(p *corev1.Pod) error { return l.relabel(p.Labels) })
	case "namespace":
		return w.labelNamespace(l)
	case "node":
		return w.labelNode(l)
	}
	return fmt.Errorf("label: %q is none of pod, namespace, node", kind)
}

func (w *world) labelNamespace(l line) error {
	name, err := l.take("the name of a namespace")
	if err != nil {
		return err
	}
	i := namespaceIndex(w.state, name)
	if i < 0 {
		return fmt.Errorf("there is no namespace %s", name)
	}
	ns := w.state.Namespaces[i].DeepCopy()
	w.state.Namespaces[i] = ns
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	return l.relabel(ns.Labels)
}

// relabel takes all remaining words: key=value sets a label and key- removes one.
func (l *line) relabel(labels map[string]string) error {
	if len(l.args) == 0 {
		return errors.New("want labels: key=value or key-")
	}
	for _, a := range l.args {
		if key, gone := strings.CutSuffix(a.Key, "-"); gone && a.Vals == nil {
			if _, has := labels[key]; !has {
				return fmt.Errorf("there is no label %s to remove", key)
			}
			delete(labels, key)
			continue
		}
		if err := setLabel(labels, a); err != nil {
			return err
		}
	}
	l.args = nil
	return nil
}

// readdress reads "readdress shop/web 10.1.1.9": the pod has these addresses and no
// others. With "none" it has lost them.
func (w *world) readdress(l line) error {
	return w.edit(&l, func(p *corev1.Pod) error {
		p.Status.PodIPs, p.Status.PodIP = nil, ""
		if len(l.args) == 1 && l.args[0].String() == "none" {
			l.args = nil
			return nil
		}
		addrs, err := l.addresses()
		for _, a := range addrs {
			p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: a.String()})
		}
		if err == nil {
			p.Status.PodIP, p.Status.Phase = addrs[0].String(), corev1.PodRunning
		}
		return err
	})
}

// phase reads "phase shop/web Succeeded".
func (w *world) phase(l line) error {
	return w.edit(&l, func(p *corev1.Pod) error {
		phase, err := l.take("a phase")
		if err != nil {
			return err
		}
		return setPhase(p, phase)
	})
}

// terminate reads "terminate shop/web": its deletion was asked for.
func (w *world) terminate(l line) error {
	return w.edit(&l, func(p *corev1.Pod) error {
		p.DeletionTimestamp = &metav1.Time{}
		return nil
	})
}
