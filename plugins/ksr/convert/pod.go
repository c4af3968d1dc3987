package convert

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/sluice-net/sluice/api/model"
)

func convertPod(pod *corev1.Pod, at place) *model.Pod {
	status := at.child("status")
	nodeIPs := readAddresses(len(pod.Status.HostIPs), func(i int) string { return pod.Status.HostIPs[i].IP },
		pod.Status.HostIP, status.child("hostIPs"), status.child("hostIP"), parseAddr)
	parse := func(text string) (netip.Addr, error) { return parsePodAddr(text, nodeIPs) }
	if pod.Spec.HostNetwork {
		parse = parseAddr // they are the addresses of its node
	}
	return &model.Pod{
		Namespace: pod.Namespace,
		Name:      pod.Name,
		Labels:    sortedLabels(pod.Labels),
		Ips: readAddresses(len(pod.Status.PodIPs), func(i int) string { return pod.Status.PodIPs[i].IP },
			pod.Status.PodIP, status.child("podIPs"), status.child("podIP"), parse),
		Phase:       readPhase(pod.Status.Phase, status.child("phase")),
		HostNetwork: pod.Spec.HostNetwork,
		NodeName:    valid(pod.Spec.NodeName),
		NodeIps:     nodeIPs,
		NamedPorts:  readNamedPorts(&pod.Spec, at.child("spec")),
		Deleting:    pod.DeletionTimestamp != nil,
		Uid:         uid(pod),
	}
}

// uid returns the UID by which the kubelet knows a pod. In the API a mirror pod represents a static
// pod, which has a UID of its own.
func uid(pod *corev1.Pod) string {
	if static := pod.Annotations[corev1.MirrorPodAnnotationKey]; static != "" {
		return valid(static)
	}
	return valid(string(pod.UID))
}

func readPhase(phase corev1.PodPhase, at place) model.Pod_Phase {
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
		at.errorf("%s is not a phase: want Pending, Running, Succeeded, Failed or Unknown", model.Quoted(string(phase)))
	}
	return model.Pod_PHASE_UNKNOWN
}

// readNamedPorts returns the named ports of the containers and of the sidecars.
func readNamedPorts(spec *corev1.PodSpec, at place) []*model.Pod_NamedPort {
	var out []*model.Pod_NamedPort
	add := func(containers []corev1.Container, at place, counts func(*corev1.Container) bool) {
		for i := range containers {
			if !counts(&containers[i]) {
				continue
			}
			for j, port := range containers[i].Ports {
				if p := readNamedPort(port, at.index(i).child("ports").index(j)); p != nil {
					out = append(out, p)
				}
			}
		}
	}
	add(spec.Containers, at.child("containers"), func(*corev1.Container) bool { return true })
	add(spec.InitContainers, at.child("initContainers"), isSidecar)
	slices.SortFunc(out, compareNamedPorts)
	return slices.CompactFunc(out, func(a, b *model.Pod_NamedPort) bool { return compareNamedPorts(a, b) == 0 })
}

func isSidecar(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

func compareNamedPorts(a, b *model.Pod_NamedPort) int {
	return cmp.Or(strings.Compare(a.Name, b.Name), cmp.Compare(a.Protocol, b.Protocol), cmp.Compare(a.Port, b.Port))
}

// readNamedPort returns nil for a port without a name and for an unusable one.
func readNamedPort(port corev1.ContainerPort, at place) *model.Pod_NamedPort {
	if port.Name == "" {
		return nil
	}
	protocol, ok := protocolOf(port.Protocol)
	switch {
	case !ok:
		at.child("protocol").errorf("%s is not a protocol: want TCP, UDP or SCTP", model.Quoted(string(port.Protocol)))
	case !isPort(port.ContainerPort):
		at.child("containerPort").errorf("%d is not a port: want 1 to 65535", port.ContainerPort)
	case len(validation.IsValidPortName(port.Name)) > 0:
		at.child("name").errorf("%s is not a port name: %s", model.Quoted(port.Name), wantPortName)
	default:
		return &model.Pod_NamedPort{Name: port.Name, Protocol: protocol, Port: uint32(port.ContainerPort)}
	}
	return nil
}
