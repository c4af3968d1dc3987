package observed

import (
	"cmp"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
)

// workload is the pods of a namespace that were made from one template: those with equal labels,
// but for the labels that controllers give each pod.
type workload struct {
	namespace string
	name      string // without the namespace
	key       string // namespace and labels, unique
	labels    map[string]string
	pods      []*model.Pod
	selector  *metav1.LabelSelector // nil until selectorOf made it
}

// notOfTemplates are labels that controllers add to pods.
var notOfTemplates = map[string]bool{
	"pod-template-hash": true, "controller-revision-hash": true, "pod-template-generation": true,
	"statefulset.kubernetes.io/pod-name": true, "apps.kubernetes.io/pod-index": true,
	"controller-uid": true, "batch.kubernetes.io/controller-uid": true, "job-name": true, "batch.kubernetes.io/job-name": true,
	"batch.kubernetes.io/job-completion-index": true,
}

// preferred are the labels by which people select pods, the best first.
var preferred = []string{"app.kubernetes.io/name", "app", "k8s-app", "app.kubernetes.io/instance", "app.kubernetes.io/component", "component", "role", "tier", "name"}

// volatile are parts of the keys of labels that change when a workload is upgraded.
var volatile = regexp.MustCompile("version|chart|hash|revision|release|build|commit")

// rank orders the keys of labels: those come first by which a workload should be selected.
func rank(key string) int {
	if i := slices.Index(preferred, key); i >= 0 {
		return i
	}
	if volatile.MatchString(key) {
		return len(preferred) + 1
	}
	return len(preferred)
}

// keys returns the keys of labels, the best first.
func keys(set map[string]string) []string {
	return slices.SortedFunc(maps.Keys(set), func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), strings.Compare(a, b)) })
}

// String returns the namespace and the name.
func (w *workload) String() string { return w.namespace + "/" + w.name }

// selectorOf selects the pods of a workload, and no others of the namespace as it is: by the fewest
// of the best labels and, where others have all of its labels, without those that they have
// besides. It is shared, and must not be changed.
func (v *inventory) selectorOf(w *workload) *metav1.LabelSelector {
	if w.selector != nil {
		return w.selector
	}
	out, left := &metav1.LabelSelector{}, []map[string]string(nil)
	for _, o := range v.namespaces[w.namespace] {
		if o != w {
			left = append(left, o.labels)
		}
	}
	for i, key := range keys(w.labels) {
		same := slices.DeleteFunc(slices.Clone(left), func(o map[string]string) bool {
			value, has := o[key]
			return !has || value != w.labels[key]
		})
		if i > 0 && len(same) == len(left) {
			continue
		}
		if left = same; out.MatchLabels == nil {
			out.MatchLabels = map[string]string{}
		}
		out.MatchLabels[key] = w.labels[key]
	}
	for len(left) > 0 {
		key := w.excluding(left)
		out.MatchExpressions = append(out.MatchExpressions, metav1.LabelSelectorRequirement{Key: key, Operator: metav1.LabelSelectorOpDoesNotExist})
		left = slices.DeleteFunc(left, func(o map[string]string) bool { _, has := o[key]; return has })
	}
	w.selector = out
	return out
}

// excluding returns the key that most of some pods have, and the workload has not. They have all of
// its labels and others, so each has one.
func (w *workload) excluding(left []map[string]string) string {
	count := map[string]int{}
	for _, o := range left {
		for key := range o {
			if _, has := w.labels[key]; !has {
				count[key]++
			}
		}
	}
	best := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(rank(a), rank(b)), strings.Compare(a, b))
	})
	return best[0]
}

// inventory is the pods of a state, as ends of flows are looked up in it.
type inventory struct {
	state      explain.Manifests
	workloads  map[api.PodID]*workload
	namespaces map[string][]*workload  // by namespace, in the order of their first pods
	stems      map[api.PodID]*workload // by names as stem shortens them; nil if several have one
	pods       map[api.PodID]*model.Pod
	at         map[netip.Addr]*model.Pod // that policies see
	hosts      map[netip.Addr]string     // names of nodes
	nodes      map[string][]netip.Addr
}

func newInventory(m explain.Manifests) *inventory {
	v := &inventory{
		state: m, workloads: map[api.PodID]*workload{}, namespaces: map[string][]*workload{}, stems: map[api.PodID]*workload{},
		pods: map[api.PodID]*model.Pod{}, at: map[netip.Addr]*model.Pod{}, hosts: map[netip.Addr]string{}, nodes: map[string][]netip.Addr{},
	}
	byKey := map[string]*workload{}
	for _, p := range slices.SortedFunc(slices.Values(m.Pods), func(a, b *model.Pod) int { return explain.PodID(a).Compare(explain.PodID(b)) }) {
		id := explain.PodID(p)
		v.pods[id] = p
		v.place(p)
		if p.GetHostNetwork() {
			continue
		}
		set := map[string]string{}
		for key, value := range explain.Labels(p) {
			if !notOfTemplates[key] {
				set[key] = value
			}
		}
		key := p.GetNamespace() + " " + explain.Labels(&model.Pod{Labels: labelsOf(set)}).String()
		w := byKey[key]
		if w == nil {
			_, name, _ := strings.Cut(explain.GroupOf(api.PodID{Namespace: id.Namespace, Name: stem(id.Name)}, set), "/")
			w = &workload{namespace: id.Namespace, name: name, key: key, labels: set}
			byKey[key] = w
			v.namespaces[id.Namespace] = append(v.namespaces[id.Namespace], w)
		}
		w.pods = append(w.pods, p)
		v.workloads[id] = w
		if other, known := v.stems[stemOf(id)]; known && other != w {
			w = nil
		}
		v.stems[stemOf(id)] = w
	}
	for _, n := range m.Nodes {
		for _, text := range n.GetAddresses() {
			v.host(n.GetName(), text)
		}
	}
	return v
}

func labelsOf(set map[string]string) (out []*model.Label) {
	for _, key := range slices.Sorted(maps.Keys(set)) {
		out = append(out, &model.Label{Key: key, Value: set[key]})
	}
	return out
}

// place notes the addresses of a pod and of its node.
func (v *inventory) place(p *model.Pod) {
	for _, text := range p.GetNodeIps() {
		v.host(p.GetNodeName(), text)
	}
	if !explain.IsLive(p) {
		return
	}
	for _, a := range explain.Addresses(p) {
		if v.at[a] == nil {
			v.at[a] = p
		}
	}
}

func (v *inventory) host(name, text string) {
	if a, err := netip.ParseAddr(text); err == nil {
		a = a.Unmap()
		v.hosts[a] = name
		v.nodes[name] = append(v.nodes[name], a)
	}
}

// suffixes are what controllers append to the names of pods.
var suffixes = regexp.MustCompile(`(-[a-f0-9]{6,10})?-[a-z0-9]{5}$|-[0-9]+$`)

// stem returns the name of a pod without what its controller appended.
func stem(name string) string { return cmp.Or(suffixes.ReplaceAllString(name, ""), name) }

func stemOf(id api.PodID) api.PodID { return api.PodID{Namespace: id.Namespace, Name: stem(id.Name)} }

// end is an end of a flow: a workload, or an address.
type end struct {
	*workload
	pod  *model.Pod // of the workload: at the end, or one like it
	addr netip.Addr
	was  api.PodID // a pod that is gone, for which the workload was found by its name
	lost api.PodID // a pod that is gone, for which no workload was found
}

// find looks up an end of a flow, by the pod that the verdict names or else by the address.
func (v *inventory) find(id api.PodID, a netip.Addr) end {
	e := end{addr: a}
	p := v.pods[id]
	switch {
	case id == api.PodID{}:
		p = v.at[a]
	case p == nil:
		return v.gone(id, a)
	case p.GetHostNetwork():
		p = nil
	}
	if p != nil {
		e.pod, e.workload = p, v.workloads[explain.PodID(p)]
	}
	return e
}

// gone looks for the workload of a pod that is not there any more.
func (v *inventory) gone(id api.PodID, a netip.Addr) end {
	w := v.stems[stemOf(id)]
	if w == nil {
		return end{addr: a, lost: id}
	}
	return end{workload: w, pod: w.pods[0], addr: a, was: id}
}

// now returns an address that a pod of the end has now, of the family of the one that it had: that
// one, if a pod still has it.
func (e end) now() (netip.Addr, bool) {
	if e.workload == nil {
		return e.addr, true
	}
	for _, p := range append([]*model.Pod{e.pod}, e.pods...) {
		if !explain.IsLive(p) {
			continue
		}
		addrs := explain.Addresses(p)
		if slices.Contains(addrs, e.addr) {
			return e.addr, true
		}
		if i := slices.IndexFunc(addrs, func(a netip.Addr) bool { return a.Is4() == e.addr.Is4() }); i >= 0 {
			return addrs[i], true
		}
	}
	return netip.Addr{}, false
}

// isOwnNode reports whether an end is the node of a pod: traffic between the two is always
// permitted.
func (v *inventory) isOwnNode(p *model.Pod, e end) bool {
	return !v.state.DenyNode && e.workload == nil && p != nil && slices.Contains(v.nodes[p.GetNodeName()], e.addr)
}
