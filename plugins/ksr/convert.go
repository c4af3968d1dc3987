package ksr

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Convert returns the canonical model message of one of the Kubernetes types that
// Object names, or of an Object that holds one. It does not change the object.
//
// A nil message means that the object is refused, for the reason that the only
// Problem or the Problems give. With a message, each Problem names a field that
// is left out (an address of a pod), kept so that it matches nothing (a peer or
// a port of a policy), or, in a rule of a cluster-scoped policy that does not
// allow, makes the rule deny everything. The Problems have the Source of an Object.
func Convert(obj any) (proto.Message, []api.Problem) {
	if o, ok := obj.(Object); ok {
		msg, problems := Convert(o.Object)
		for i := range problems {
			problems[i].Source = o.Source
		}
		return msg, problems
	}
	id, ok := idOf(obj)
	if !ok {
		return nil, []api.Problem{{Reason: fmt.Sprintf("%T is not a kind that is reflected", obj)}}
	}
	if err := checkID(id); err != nil {
		return nil, []api.Problem{err.problem("", titleOf(id.Kind.String(), id.Namespace, id.Name))}
	}
	f := findings{object: id.String()}
	msg := readTypes[reflect.TypeOf(obj)].convert(&f, obj)
	if msg == nil {
		return nil, f.all()
	}
	if size := proto.Size(msg); size > model.MaxValue {
		return nil, []api.Problem{{Object: f.object, Reason: model.TooLarge(size).Error()}}
	}
	return msg, f.all()
}

// ConvertAll converts objects. Refused ones are missing in the messages.
func ConvertAll(objs []Object) ([]proto.Message, []api.Problem) {
	var msgs []proto.Message
	var problems []api.Problem
	for _, o := range objs {
		msg, found := Convert(o)
		if msg != nil {
			msgs = append(msgs, msg)
		}
		problems = append(problems, found...)
	}
	return msgs, problems
}

// findings collects what is wrong with the fields of one object.
type findings struct {
	object   string
	problems []api.Problem // the first model.MaxProblems
	more     int           // that followed
}

// all returns the problems, and how many there are beyond those that are told.
func (f *findings) all() []api.Problem {
	if f.more == 0 {
		return f.problems
	}
	return append(f.problems, api.Problem{Object: f.object, Reason: fmt.Sprintf("has %d more problems", f.more)})
}

func (f *findings) add(path *field.Path, format string, args ...any) {
	if len(f.problems) == model.MaxProblems {
		f.more++
		return
	}
	f.problems = append(f.problems, api.Problem{Object: f.object, Field: path.String(), Reason: fmt.Sprintf(format, args...)})
}

// namespace sets kubernetes.io/metadata.name as the API server does, whatever the
// object says. An annotation that asks for isolation has had no effect since
// Kubernetes 1.7, and whoever wrote it may rely on it.
func (f *findings) namespace(ns *corev1.Namespace) *model.Namespace {
	if asks, _ := isolated(ns); asks {
		f.add(isolationPath, "is a legacy annotation that isolates nothing: %s, or remove it", convertFirst)
	}
	labels := maps.Clone(ns.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[corev1.LabelMetadataName] = ns.Name
	return &model.Namespace{Name: ns.Name, Labels: sortedLabels(labels)}
}

func (f *findings) pod(pod *corev1.Pod) *model.Pod {
	status := field.NewPath("status")
	nodeIPs := f.addresses(len(pod.Status.HostIPs), func(i int) string { return pod.Status.HostIPs[i].IP },
		pod.Status.HostIP, status.Child("hostIPs"), status.Child("hostIP"), parseAddr)
	parse := func(text string) (netip.Addr, error) { return parsePodAddr(text, nodeIPs) }
	if pod.Spec.HostNetwork {
		parse = parseAddr // they are its node's
	}
	return &model.Pod{
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Labels:    sortedLabels(pod.Labels),
		Ips: f.addresses(len(pod.Status.PodIPs), func(i int) string { return pod.Status.PodIPs[i].IP },
			pod.Status.PodIP, status.Child("podIPs"), status.Child("podIP"), parse),
		Phase:       f.phase(pod.Status.Phase, status.Child("phase")),
		HostNetwork: pod.Spec.HostNetwork,
		NodeName:    valid(pod.Spec.NodeName),
		NodeIps:     nodeIPs,
		NamedPorts:  f.namedPorts(&pod.Spec),
		Deleting:    pod.DeletionTimestamp != nil,
		Uid:         uid(pod),
	}
}

// uid returns what the kubelet calls a pod. A mirror pod stands in the API for a static pod, which has
// a UID of its own.
func uid(pod *corev1.Pod) string {
	if static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static != "" {
		return valid(static)
	}
	return valid(string(pod.UID))
}

// addresses returns a list of addresses in canonical text, sorted, each once;
// where the list is empty, the single address of older clusters. Of more than
// model.MaxAddresses the first ones stay.
func (f *findings) addresses(n int, at func(int) string, single string, list, fallback *field.Path, parse func(string) (netip.Addr, error)) []string {
	var out []string
	add := func(text string, path *field.Path) {
		if addr, err := parse(text); err != nil {
			f.add(path, "%v", err)
		} else {
			out = append(out, addr.String())
		}
	}
	for i := range n {
		add(at(i), list.Index(i).Child("ip"))
	}
	if n == 0 && single != "" {
		add(single, fallback)
	}
	slices.Sort(out)
	out = slices.Compact(out)
	if len(out) > model.MaxAddresses {
		f.add(list, "has %d addresses, the limit is %d: the others are left out", len(out), model.MaxAddresses)
		out = out[:model.MaxAddresses:model.MaxAddresses]
	}
	return out
}

func (f *findings) phase(phase corev1.PodPhase, path *field.Path) model.Pod_Phase {
	switch phase {
	case "":
		return model.Pod_PHASE_UNSPECIFIED
	case corev1.PodPending:
		return model.Pod_PHASE_PENDING
	case corev1.PodRunning:
		return model.Pod_PHASE_RUNNING
	case corev1.PodSucceeded:
		return model.Pod_PHASE_SUCCEEDED
	case corev1.PodFailed:
		return model.Pod_PHASE_FAILED
	case corev1.PodUnknown:
	default:
		f.add(path, "%s is not a phase: want Pending, Running, Succeeded, Failed or Unknown", quoted(string(phase)))
	}
	return model.Pod_PHASE_UNKNOWN
}

// namedPorts returns the ports with a name of the containers and of the sidecars.
func (f *findings) namedPorts(spec *corev1.PodSpec) []*model.Pod_NamedPort {
	var out []*model.Pod_NamedPort
	add := func(containers []corev1.Container, path *field.Path, counts func(*corev1.Container) bool) {
		for i := range containers {
			if !counts(&containers[i]) {
				continue
			}
			for j, port := range containers[i].Ports {
				if p := f.namedPort(port, path.Index(i).Child("ports").Index(j)); p != nil {
					out = append(out, p)
				}
			}
		}
	}
	add(spec.Containers, field.NewPath("spec", "containers"), func(*corev1.Container) bool { return true })
	add(spec.InitContainers, field.NewPath("spec", "initContainers"), isSidecar)
	slices.SortFunc(out, compareNamedPorts)
	return slices.CompactFunc(out, func(a, b *model.Pod_NamedPort) bool { return compareNamedPorts(a, b) == 0 })
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func compareNamedPorts(a, b *model.Pod_NamedPort) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// namedPort returns nil for a port without a name and for one that cannot be used.
func (f *findings) namedPort(port corev1.ContainerPort, path *field.Path) *model.Pod_NamedPort {
	if port.Name == "" {
		return nil
	}
	protocol, ok := protocolOf(port.Protocol)
	switch {
	case !ok:
		f.add(path.Child("protocol"), "%s is not a protocol: want TCP, UDP or SCTP", quoted(string(port.Protocol)))
	case !isPort(port.ContainerPort):
		f.add(path.Child("containerPort"), "%d is not a port: want 1 to 65535", port.ContainerPort)
	case len(validation.IsValidPortName(port.Name)) > 0:
		f.add(path.Child("name"), "%s is not a port name: %s", quoted(port.Name), wantPortName)
	default:
		return &model.Pod_NamedPort{Name: port.Name, Protocol: protocol, Port: uint32(port.ContainerPort)}
	}
	return nil
}

const wantPortName = "want at most 15 lower-case letters, digits and '-', with at least one letter"

// protocolOf returns TCP and false for a protocol that policies cannot name.
func protocolOf(p corev1.Protocol) (model.Protocol, bool) {
	switch p {
	case "", corev1.ProtocolTCP:
		return model.Protocol_PROTOCOL_TCP, true
	case corev1.ProtocolUDP:
		return model.Protocol_PROTOCOL_UDP, true
	case corev1.ProtocolSCTP:
		return model.Protocol_PROTOCOL_SCTP, true
	}
	return model.Protocol_PROTOCOL_TCP, false
}

func isPort(n int32) bool { return 1 <= n && n <= 65535 }

func sortedLabels(labels map[string]string) []*model.Label {
	var out []*model.Label
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		out = append(out, &model.Label{Key: valid(key), Value: valid(labels[key])})
	}
	return out
}

// valid replaces what is not UTF-8, as the JSON decoder does: protobuf refuses a
// whole message for it.
func valid(s string) string { return strings.ToValidUTF8(s, "\ufffd") }
