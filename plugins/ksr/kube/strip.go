package kube

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// strip removes, in place, what convert.ToModel does not read. It is applied to every object right
// after decoding, because a list is complete before it is converted.
func strip(obj any) {
	switch o := obj.(type) {
	case *corev1.Pod:
		uid, static := o.UID, o.Annotations[corev1.MirrorPodAnnotationKey]
		stripMeta(&o.ObjectMeta)
		if o.UID = uid; static != "" {
			o.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: static}
		}
		o.Spec = corev1.PodSpec{
			NodeName: o.Spec.NodeName, HostNetwork: o.Spec.HostNetwork,
			Containers: ports(o.Spec.Containers), InitContainers: ports(o.Spec.InitContainers),
		}
		o.Status = corev1.PodStatus{
			Phase: o.Status.Phase, PodIP: o.Status.PodIP, PodIPs: o.Status.PodIPs,
			HostIP: o.Status.HostIP, HostIPs: o.Status.HostIPs,
		}
	case *corev1.Node:
		stripMeta(&o.ObjectMeta)
		o.Spec = corev1.NodeSpec{}
		o.Status = corev1.NodeStatus{Addresses: o.Status.Addresses}
	case *corev1.Namespace:
		annotations := o.Annotations // an annotation once isolated a namespace
		stripMeta(&o.ObjectMeta)
		o.Annotations = annotations
		o.Spec, o.Status = corev1.NamespaceSpec{}, corev1.NamespaceStatus{}
	case *networkingv1.NetworkPolicy:
		mode, set := o.Annotations[kinds.ModeAnnotation]
		stripMeta(&o.ObjectMeta)
		if set {
			o.Annotations = map[string]string{kinds.ModeAnnotation: mode}
		}
	case *corev1.Service:
		stripMeta(&o.ObjectMeta)
		o.Status.Conditions = nil
	case *discoveryv1.EndpointSlice:
		stripMeta(&o.ObjectMeta)
		for i, e := range o.Endpoints {
			o.Endpoints[i] = discoveryv1.Endpoint{Addresses: e.Addresses}
		}
	case *unstructured.Unstructured:
		unstructured.RemoveNestedField(o.Object, "metadata", "managedFields")
		stripAnnotations(o)
		unstructured.RemoveNestedField(o.Object, "status")
	}
}

// stripAnnotations keeps only the mode of a policy.
func stripAnnotations(o *unstructured.Unstructured) {
	mode, set := o.GetAnnotations()[kinds.ModeAnnotation]
	unstructured.RemoveNestedField(o.Object, "metadata", "annotations")
	if set {
		o.SetAnnotations(map[string]string{kinds.ModeAnnotation: mode})
	}
}

func stripMeta(m *metav1.ObjectMeta) {
	*m = metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, ResourceVersion: m.ResourceVersion,
		Labels: m.Labels, DeletionTimestamp: m.DeletionTimestamp,
	}
}

// ports keeps only the ports of containers. It keeps a container without ports as an empty one:
// problems name containers by index.
func ports(list []corev1.Container) []corev1.Container {
	last := -1
	for i := range list {
		if len(list[i].Ports) > 0 {
			last = i
		}
	}
	if last < 0 {
		return nil
	}
	out := make([]corev1.Container, last+1)
	for i := range out {
		out[i] = corev1.Container{Ports: list[i].Ports, RestartPolicy: list[i].RestartPolicy}
	}
	return out
}

// stripList strips the items of a page.
func stripList(list runtime.Object) {
	switch l := list.(type) {
	case *corev1.PodList:
		stripItems[corev1.Pod, *corev1.Pod](l.Items)
	case *corev1.NodeList:
		stripItems[corev1.Node, *corev1.Node](l.Items)
	case *corev1.NamespaceList:
		stripItems[corev1.Namespace, *corev1.Namespace](l.Items)
	case *networkingv1.NetworkPolicyList:
		stripItems[networkingv1.NetworkPolicy, *networkingv1.NetworkPolicy](l.Items)
	case *corev1.ServiceList:
		stripItems[corev1.Service, *corev1.Service](l.Items)
	case *discoveryv1.EndpointSliceList:
		stripItems[discoveryv1.EndpointSlice, *discoveryv1.EndpointSlice](l.Items)
	case *unstructured.UnstructuredList:
		stripItems[unstructured.Unstructured, *unstructured.Unstructured](l.Items)
	}
}

func stripItems[T any, P *T](items []T) {
	for i := range items {
		strip(P(&items[i]))
	}
}

func isNotFound(err error) bool { return apierrors.IsNotFound(err) }
