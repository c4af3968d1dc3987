package cluster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The universe of names. The empty value of a key is drawn as well.
var (
	podLabels = []labelKey{
		{"app", []string{"web", "api", "db"}},
		{"tier", []string{"front", "back"}},
		{"env", []string{"prod", ""}},
	}
	namespaceKeys = []labelKey{
		{"team", []string{"a", "b"}},
		{"env", []string{"prod", "dev", ""}},
	}
	nodeKeys = []labelKey{
		{"zone", []string{"a", "b"}},
		{"edge", []string{"yes"}},
	}
	portNames   = []string{"http", "dns", "metrics"}
	portNumbers = []int32{80, 8080, 53, 443, 9090}
	// of containers: rules that name no protocol mean TCP
	listening = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
	protocols = []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
)

type labelKey struct {
	key    string
	values []string
}

// labels draws for every key a value or absence.
func (d draws) labels(keys []labelKey) map[string]string {
	out := map[string]string{}
	for _, k := range keys {
		if i := d.Below(len(k.values)+1, k.key); i < len(k.values) {
			out[k.key] = k.values[i]
		}
	}
	return out
}

// state draws a whole cluster. Some namespaces have pods and policies but no
// object yet.
func (b builder) state() State {
	var s State
	for i := range b.cfg.Nodes {
		s.Nodes = append(s.Nodes, b.nodes.node(i))
	}
	for i := range b.cfg.Namespaces {
		if b.exact || !b.one(6, "namespace unknown") {
			s.Namespaces = append(s.Namespaces, b.namespaces.namespace(namespaceName(i)))
		}
	}
	used := addressesOf(s.Pods)
	for i := range b.count(1, b.cfg.Pods, "pods") {
		p := b.pods.pod(&s, b.anyNamespace(), fmt.Sprintf("pod-%d", i), used)
		addAddresses(used, p)
		s.Pods = append(s.Pods, p)
	}
	for i := range b.count(0, b.cfg.Policies, "policies") {
		s.Policies = append(s.Policies, b.policies.policy(b.anyNamespace(), fmt.Sprintf("np-%d", i)))
	}
	for range b.count(0, b.cfg.Admin, "admin policies") {
		b.admin.add(&s)
	}
	return s
}

// podDrawer draws pods and what happens to them.
type podDrawer struct{ draws }

// pod draws a pod with an address that is not used.
func (d podDrawer) pod(s *State, namespace, name string, used map[netip.Addr]int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: d.labels(podLabels)}}
	p.Status.Phase = corev1.PodRunning
	p.Spec.Containers = []corev1.Container{d.container("main")}
	if d.one(4, "second container") {
		p.Spec.Containers = append(p.Spec.Containers, d.container("second"))
	}
	p.Spec.InitContainers = d.initContainers()
	d.place(p, d.Below(max(1, len(s.Nodes)), "node"), used)
	return p
}

// place puts a pod on a node and gives it a phase and addresses.
func (d podDrawer) place(p *corev1.Pod, node int, used map[netip.Addr]int) {
	p.Spec.NodeName = nodeName(node)
	host := nodeAddresses(node)
	p.Status.HostIP = host[0]
	p.Status.HostIPs = []corev1.HostIP{{IP: host[0]}, {IP: host[1]}}
	switch d.Below(16, "kind of pod") {
	case 11: // the network is being set up
		p.Status.Phase = corev1.PodPending
	case 12:
		p.Status.Phase = corev1.PodPending
		d.address(p, used)
	case 13:
		p.Status.Phase = pick(d, []corev1.PodPhase{corev1.PodSucceeded, corev1.PodFailed}, "end")
		d.address(p, used)
	case 14:
		p.Spec.HostNetwork = true
		setAddresses(p, host...)
	case 15:
		p.DeletionTimestamp = deletion()
		d.address(p, used)
	default:
		d.address(p, used)
	}
}

// deletion is when pods are deleted: not the zero time, which no JSON has.
func deletion() *metav1.Time { t := metav1.Unix(1<<30, 0).Rfc3339Copy(); return &t }

func (d podDrawer) container(name string) corev1.Container {
	c := corev1.Container{Name: name}
	for range d.Below(3, "ports of container") {
		p := corev1.ContainerPort{ContainerPort: pick(d, portNumbers, "container port"), Protocol: pick(d, listening, "protocol")}
		if !d.one(4, "port without name") {
			p.Name = pick(d, portNames, "port name")
		}
		taken := func(o corev1.ContainerPort) bool { return p.Name != "" && o.Name == p.Name && o.Protocol == p.Protocol }
		if !slices.ContainsFunc(c.Ports, taken) {
			c.Ports = append(c.Ports, p)
		}
	}
	return c
}

func (d podDrawer) initContainers() []corev1.Container {
	switch d.Below(5, "init container") {
	case 2:
		return []corev1.Container{d.container("init")}
	case 3, 4:
		return []corev1.Container{d.sidecar()}
	}
	return nil
}

// sidecar draws an init container that runs on. Each of its ports has a name, because rules with a
// port number do not depend on the pod.
func (d podDrawer) sidecar() corev1.Container {
	always := corev1.ContainerRestartPolicyAlways
	c := corev1.Container{Name: "sidecar", RestartPolicy: &always}
	names := portNames[d.Below(len(portNames), "first name of sidecar"):]
	for i := range min(len(names), 1+d.Below(2, "more ports of sidecar")) {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: names[i],
			ContainerPort: pick(d, portNumbers, "port of sidecar"), Protocol: pick(d, listening, "protocol of sidecar")})
	}
	return c
}

// address gives a pod one address that no pod in its own network has, and with
// IPv6 mostly a second one. The pool is not much larger than the cluster, so
// that addresses are soon used again.
func (d podDrawer) address(p *corev1.Pod, used map[netip.Addr]int) {
	i := d.Below(d.pool(), "address")
	if !d.cfg.SharedAddresses || !d.one(8, "shared address") {
		for used[addr4(i)] > 0 || used[addr6(i)] > 0 {
			i++
		}
	}
	texts := []string{addr4(i).String()}
	if d.cfg.IPv6 {
		switch d.Below(4, "families") {
		case 2:
			texts = []string{addr6(i).String()}
		case 3:
		default:
			texts = append(texts, addr6(i).String())
		}
	}
	setAddresses(p, texts...)
}

func (d draws) pool() int { return 2*d.cfg.Pods + 8 }

// addr4 spreads the pool over a few networks, so that blocks cover parts of it.
func addr4(i int) netip.Addr {
	second, third, fourth := spread(i)
	return netip.AddrFrom4([4]byte{10, second, third, fourth})
}

func addr6(i int) netip.Addr {
	second, third, fourth := spread(i)
	return netip.AddrFrom16([16]byte{0: 0xfd, 3: 1, 5: second, 7: third, 15: fourth})
}

func spread(i int) (second, third, fourth byte) {
	const lanes, slots = 4, 80
	block := i / (lanes * slots)
	return byte(1 + block/64), byte(i%lanes + lanes*(block%64)), byte(1 + i/lanes%slots*3)
}

func setAddresses(p *corev1.Pod, texts ...string) {
	p.Status.PodIP, p.Status.PodIPs = "", nil
	for _, t := range texts {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: t})
	}
	if len(texts) > 0 {
		p.Status.PodIP = texts[0]
	}
}

// holds reports whether the pod's addresses are its own now: not of the node, and
// not given back.
func holds(p *corev1.Pod) bool {
	return !p.Spec.HostNetwork && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed
}

func addAddresses(used map[netip.Addr]int, p *corev1.Pod) {
	if !holds(p) {
		return
	}
	for _, ip := range p.Status.PodIPs {
		if a, err := netip.ParseAddr(ip.IP); err == nil && !a.IsUnspecified() {
			used[a.Unmap()]++
		}
	}
}

// addressesOf counts the addresses of pods in their own network.
func addressesOf(pods []*corev1.Pod) map[netip.Addr]int {
	used := map[netip.Addr]int{}
	for _, p := range pods {
		addAddresses(used, p)
	}
	return used
}

// describe names an object in the words of a step.
func describe(verb, namespace, name string, more ...string) string {
	return strings.TrimSpace(verb + " " + namespace + "/" + name + " " + strings.Join(more, " "))
}
