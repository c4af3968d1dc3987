package cluster

import (
	"iter"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/expr"
	"github.com/sluice-net/sluice/internal/analysis/services"
)

// part is the part of a state that a question is about. Of everything else it reads single fields,
// without decoding the object: in a large cluster that would cost more than the answer.
type part struct {
	prefix  string
	entries []model.Entry
	pods    int                      // of the entries: they come first
	taken   map[string]proto.Message // by key
	asked   map[string]bool          // addresses that the question names
}

// newPart returns an empty part. It reorders the entries: most of them are pods, which come first.
func newPart(prefix string, entries []model.Entry) *part {
	root, pods := model.KindRoot(prefix, model.KindPod), 0
	for i, e := range entries {
		if strings.HasPrefix(e.Key, root) {
			entries[pods], entries[i] = e, entries[pods]
			pods++
		}
	}
	return &part{prefix, entries, pods, map[string]proto.Message{}, map[string]bool{}}
}

// aboutFlows returns the part that decides about flows between two ends: the pods at both and all
// pods that share their addresses, the services that lead there, and the namespaces, nodes and
// policies of these pods. Where an end is not understood, or not there, it has what the error names.
func (p *part) aboutFlows(src, dst string) State {
	for _, end := range []string{src, dst} {
		p.takeEnd(end)
	}
	p.takePodsAt(p.addresses())
	for namespace := range p.namespaces() {
		p.takeKind(model.KindNetworkPolicy, namespace)
		p.takeKind(model.KindService, namespace)
	}
	p.takeSurroundings()
	return p.state()
}

// aboutPod returns the part that decides which policies select a pod, or name it as a peer.
func (p *part) aboutPod(id api.PodID) State {
	p.takeKey(model.Key(p.prefix, model.ID{Kind: model.KindPod, Namespace: id.Namespace, Name: id.Name}))
	p.takePodsAt(p.addresses())
	p.takeKind(model.KindNetworkPolicy, "")
	p.takeSurroundings()
	return p.state()
}

// aboutPolicy returns all policies of a name.
func (p *part) aboutPolicy(namespace, name string) State {
	if namespace != "" {
		p.takeKey(model.Key(p.prefix, model.ID{Kind: model.KindNetworkPolicy, Namespace: namespace, Name: name}))
		return p.state()
	}
	for _, kind := range adminKinds {
		p.takeKey(model.Key(p.prefix, model.ID{Kind: kind, Name: name}))
	}
	return p.state()
}

var adminKinds = []model.Kind{model.KindAdminNetworkPolicy, model.KindBaselineAdminNetworkPolicy, model.KindClusterNetworkPolicy}

// state returns what was taken, in the order of keys.
func (p *part) state() (s State) {
	for _, key := range slices.Sorted(maps.Keys(p.taken)) {
		s.Add(p.taken[key])
	}
	return s
}

// each yields the entries of a kind, and of a namespace unless it is empty.
func (p *part) each(kind model.Kind, namespace string) iter.Seq[model.Entry] {
	root, of, all := model.KindRoot(p.prefix, kind), p.entries[p.pods:], false
	if kind == model.KindPod {
		of, all = p.entries[:p.pods], namespace == ""
	}
	if namespace != "" {
		root += namespace + "/"
	}
	return func(yield func(model.Entry) bool) {
		for _, e := range of {
			if (all || strings.HasPrefix(e.Key, root)) && !yield(e) {
				return
			}
		}
	}
}

// decode decodes an object into the part.
func (p *part) decode(e model.Entry) proto.Message {
	if m := p.taken[e.Key]; m != nil {
		return m
	}
	id, err := model.ParseKey(p.prefix, e.Key)
	if err != nil {
		return nil
	}
	m, err := model.Decode(id, e.Value)
	if err != nil {
		return nil // impossible: it is in force
	}
	p.taken[e.Key] = m
	return m
}

// takenPods yields the pods that were taken.
func (p *part) takenPods() iter.Seq[*model.Pod] {
	return func(yield func(*model.Pod) bool) {
		for _, m := range p.taken {
			if pod, ok := m.(*model.Pod); ok && !yield(pod) {
				return
			}
		}
	}
}

func (p *part) namespaces() map[string]bool {
	out := map[string]bool{}
	for pod := range p.takenPods() {
		out[pod.GetNamespace()] = true
	}
	return out
}

func (p *part) takeKey(key string) (found bool) {
	for _, e := range p.entries {
		if e.Key == key {
			p.decode(e)
			return true
		}
	}
	return false
}

func (p *part) takeKind(kind model.Kind, namespace string) {
	for e := range p.each(kind, namespace) {
		p.decode(e)
	}
}

// takeEnd takes what one end of a question names.
func (p *part) takeEnd(text string) {
	if namespace, name, ok := services.ParseName(text); ok {
		for e := range p.each(model.KindService, namespace) {
			if nameIn(e.Key) == name {
				p.takeService(e)
			}
			p.decode(e) // an error names them
		}
		return
	}
	e, err := expr.ParseEndpoint(text)
	switch {
	case err != nil:
	case e.Addr.IsValid():
		p.asked[e.Addr.String()] = true
		for entry := range p.each(model.KindService, "") {
			if anyIn(entry.Value, serviceAddresses, p.asked) || anyIn(entry.Value, serviceExternalAddresses, p.asked) {
				p.takeService(entry)
			}
		}
	case e.Selects():
		p.takeSelected(e)
	case !p.takeKey(model.Key(p.prefix, model.ID{Kind: model.KindPod, Namespace: e.Namespace, Name: e.Name})):
		p.takeKind(model.KindPod, e.Namespace) // the error names them
	}
}

// takeService takes a service, its slices, and the pods that it selects.
func (p *part) takeService(e model.Entry) {
	s, ok := p.decode(e).(*model.Service)
	if !ok {
		return
	}
	p.takeKind(model.KindEndpointSlice, s.GetNamespace())
	if selector := s.GetSelector(); len(selector) > 0 {
		p.takeSelected(expr.Endpoint{Namespace: s.GetNamespace(), Selector: explain.LabelSet(selector).AsSelector()})
	}
}

// takeSelected takes the pods that an expression selects.
func (p *part) takeSelected(e expr.Endpoint) {
	namespace := e.Namespace
	if namespace == expr.Everywhere {
		namespace = ""
	}
	read := labelReader{texts: map[string]string{}, set: labels.Set{}}
	for entry := range p.each(model.KindPod, namespace) {
		if e.Selector == nil && strings.HasSuffix(entry.Key, "/"+e.Name) || e.Selector != nil && e.Selector.Matches(read.labels(entry.Value)) {
			p.decode(entry)
		}
	}
}

// takePodsAt takes the pods at addresses.
func (p *part) takePodsAt(addrs map[string]bool) {
	for e := range p.each(model.KindPod, "") {
		if anyIn(e.Value, podIPs, addrs) {
			p.decode(e)
		}
	}
}

// addresses returns those of the question, and of what was taken.
func (p *part) addresses() map[string]bool {
	out := maps.Clone(p.asked)
	for _, m := range p.taken {
		switch m := m.(type) {
		case *model.Pod:
			for _, ip := range m.GetIps() {
				out[ip] = true
			}
		case *model.EndpointSlice:
			for _, subset := range m.GetSubsets() {
				for _, a := range subset.GetAddresses() {
					out[a] = true
				}
			}
		}
	}
	return out
}

// takeSurroundings takes what applies to the pods that were taken: their namespaces and nodes, the
// nodes at their addresses, and admin policies.
func (p *part) takeSurroundings() {
	namespaces, addrs, nodes := p.namespaces(), p.addresses(), map[string]bool{}
	for pod := range p.takenPods() {
		nodes[pod.GetNodeName()] = true
	}
	for e := range p.each(model.KindNamespace, "") {
		if namespaces[nameIn(e.Key)] {
			p.decode(e)
		}
	}
	for e := range p.each(model.KindNode, "") {
		if nodes[nameIn(e.Key)] || anyIn(e.Value, nodeAddresses, addrs) {
			p.decode(e)
		}
	}
	for _, kind := range adminKinds {
		p.takeKind(kind, "")
	}
	p.addNodeAddresses()
}

// nameIn returns the name of the object of a key.
func nameIn(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// addNodeAddresses adds to each pod the addresses of its node that other pods of the node name: a
// pod's own node is exempt at all of them.
func (p *part) addNodeAddresses() {
	known := map[string]map[string]bool{}
	for pod := range p.takenPods() {
		known[pod.GetNodeName()] = map[string]bool{}
	}
	delete(known, "")
	for e := range p.each(model.KindPod, "") {
		for node := range fields(e.Value, podNodeName) {
			addrs, ok := known[string(node)]
			for ip := range fields(e.Value, podNodeIPs) {
				if ok && !addrs[string(ip)] && isLive(e.Value) {
					addrs[string(ip)] = true
				}
			}
		}
	}
	for pod := range p.takenPods() {
		for _, ip := range slices.Sorted(maps.Keys(known[pod.GetNodeName()])) {
			if explain.IsLive(pod) && !slices.Contains(pod.GetNodeIps(), ip) {
				pod.NodeIps = append(pod.NodeIps, ip)
			}
		}
	}
}

// isLive reports whether policies see a pod.
func isLive(value []byte) bool {
	var pod model.Pod
	return proto.Unmarshal(value, &pod) == nil && explain.IsLive(&pod)
}

// Fields of api/model/model.proto that are read without decoding the message. Addresses are in
// canonical text there.
var (
	podLabels                = fieldOf(&model.Pod{}, "labels")
	podIPs                   = fieldOf(&model.Pod{}, "ips")
	podNodeName              = fieldOf(&model.Pod{}, "node_name")
	podNodeIPs               = fieldOf(&model.Pod{}, "node_ips")
	nodeAddresses            = fieldOf(&model.Node{}, "addresses")
	serviceAddresses         = fieldOf(&model.Service{}, "addresses")
	serviceExternalAddresses = fieldOf(&model.Service{}, "external_addresses")
	labelKey                 = fieldOf(&model.Label{}, "key")
	labelValue               = fieldOf(&model.Label{}, "value")
)

func fieldOf(m proto.Message, name protoreflect.Name) protowire.Number {
	return m.ProtoReflect().Descriptor().Fields().ByName(name).Number()
}

// fields yields the values of one field of an encoded message.
func fields(message []byte, field protowire.Number) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		for len(message) > 0 {
			number, kind, n := protowire.ConsumeTag(message)
			if n < 0 {
				return
			}
			message = message[n:]
			if number == field && kind == protowire.BytesType {
				value, _ := protowire.ConsumeBytes(message)
				if !yield(value) {
					return
				}
			}
			if n = protowire.ConsumeFieldValue(number, kind, message); n < 0 {
				return
			}
			message = message[n:]
		}
	}
}

// anyIn reports whether a field of an encoded message has one of some texts.
func anyIn(message []byte, field protowire.Number, texts map[string]bool) bool {
	for value := range fields(message, field) {
		if texts[string(value)] {
			return true
		}
	}
	return false
}

// labelReader reads the labels of encoded pods. It keeps each text once.
type labelReader struct {
	texts map[string]string
	set   labels.Set
}

// labels returns the labels of a pod, until the next call.
func (r labelReader) labels(pod []byte) labels.Set {
	clear(r.set)
	for label := range fields(pod, podLabels) {
		var key, value string
		for k := range fields(label, labelKey) {
			key = r.text(k)
		}
		for v := range fields(label, labelValue) {
			value = r.text(v)
		}
		r.set[key] = value
	}
	return r.set
}

func (r labelReader) text(b []byte) string {
	s, ok := r.texts[string(b)]
	if !ok {
		s = string(b)
		r.texts[s] = s
	}
	return s
}
