package convert

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

// decodeOne reads a manifest of one object.
func decodeOne(t *testing.T, manifest string) kinds.Object {
	t.Helper()
	objs, problems := decodeText(strings.NewReader(manifest), "f")
	if len(objs) != 1 || len(problems) > 0 {
		t.Fatalf("want one object, got %d and %v of:\n%s", len(objs), problems, manifest)
	}
	checkLaterVersion(t, manifest, objs[0])
	return objs[0]
}

// checkLaterVersion: what is written for v1alpha2 means the same in v1beta1.
func checkLaterVersion(t *testing.T, manifest string, alpha kinds.Object) {
	t.Helper()
	beta := strings.Replace(manifest, "apiVersion: policy.networking.k8s.io/v1alpha2", "apiVersion: policy.networking.k8s.io/v1beta1", 1)
	if beta == manifest {
		return
	}
	objs, problems := decodeText(strings.NewReader(beta), "f")
	if len(objs) != 1 || len(problems) > 0 {
		t.Fatalf("in v1beta1 there are %d objects and %v of:\n%s", len(objs), problems, beta)
	}
	want, reported := ToModel(alpha)
	got, found := ToModel(objs[0])
	if diff := cmp.Diff(want, got, protocmp.Transform()) + cmp.Diff(reported, found, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("v1beta1 differs (-v1alpha2 +v1beta1):\n%s", diff)
	}
}

// checkConversion compares a conversion with protobuf text ("" for refused) and
// problems without source and object.
func checkConversion(t *testing.T, obj any, kind model.Kind, want string, problems []string) {
	t.Helper()
	got, found := ToModel(obj)
	var gotProblems []string
	for _, p := range found {
		if p.Object == "" {
			t.Errorf("problem without object: %v", p)
		}
		p.Source, p.Object = "", ""
		gotProblems = append(gotProblems, p.Error())
	}
	if diff := cmp.Diff(problems, gotProblems); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	if want == "" || got == nil {
		if want != "" || got != nil {
			t.Errorf("message %v, want %q", got, want)
		}
		return
	}
	msg := kind.New()
	if err := prototext.Unmarshal([]byte(want), msg); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(msg, got, protocmp.Transform()); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
}

func TestToModelOfPods(t *testing.T) {
	const name = `namespace: "default" name: "web" `
	for title, c := range map[string]struct {
		in, want string
		problems []string
	}{
		"a pod that is not scheduled": {"", name, nil},
		"spec and status": {`spec: {hostNetwork: true, nodeName: n1}
status: {phase: Running, hostIP: 192.168.0.1, podIP: 10.1.0.5}`,
			name + `ips: "10.1.0.5" phase: PHASE_RUNNING host_network: true node_name: "n1" node_ips: "192.168.0.1"`, nil},
		"the lists go before the single addresses": {
			`status: {podIP: 1.1.1.1, podIPs: [{ip: 10.1.0.5}, {ip: "fd00::5"}], hostIP: 2.2.2.2, hostIPs: [{ip: "fd00::1"}, {ip: 192.168.0.1}]}`,
			name + `ips: "10.1.0.5" ips: "fd00::5" node_ips: "192.168.0.1" node_ips: "fd00::1"`, nil},
		"addresses are canonical, sorted and there once": {
			`status: {podIPs: [{ip: "FD00:0:0::0005"}, {ip: "010.001.000.005"}, {ip: "::ffff:10.1.0.4"}, {ip: 10.1.0.5}]}`,
			name + `ips: "10.1.0.4" ips: "10.1.0.5" ips: "fd00::5"`, nil},
		"a bad address is left out": {
			`status: {podIPs: [{ip: 10.1.0.256}, {ip: 10.1.0.5}, {}, {ip: "fe80::1%eth0"}], hostIP: 0.0.0.0}`,
			name + `ips: "10.1.0.5"`, []string{
				`status.hostIP: "0.0.0.0" is not an address of a pod or node, it is left out`,
				`status.podIPs[0].ip: "10.1.0.256" is not an address of a pod or node, it is left out`,
				`status.podIPs[2].ip: "" is not an address of a pod or node, it is left out`,
				`status.podIPs[3].ip: "fe80::1%eth0" is not an address of a pod or node, it is left out`,
			}},
		"what no pod has is left out": {
			`status: {podIPs: [{ip: 127.0.0.1}, {ip: 169.254.1.1}, {ip: 255.255.255.255}, {ip: "::ffff:127.0.0.1"}, {ip: "fe80::1"}, {ip: 10.1.0.5}, {ip: "192.168.0.1"}], hostIPs: [{ip: 192.168.0.1}]}`,
			name + `ips: "10.1.0.5" node_ips: "192.168.0.1"`, []string{
				`status.podIPs[0].ip: "127.0.0.1" is not an address of a pod: loopback, link-local and broadcast are left out`,
				`status.podIPs[1].ip: "169.254.1.1" is not an address of a pod: loopback, link-local and broadcast are left out`,
				`status.podIPs[2].ip: "255.255.255.255" is not an address of a pod: loopback, link-local and broadcast are left out`,
				`status.podIPs[3].ip: "::ffff:127.0.0.1" is not an address of a pod: loopback, link-local and broadcast are left out`,
				`status.podIPs[4].ip: "fe80::1" is not an address of a pod: loopback, link-local and broadcast are left out`,
				`status.podIPs[6].ip: "192.168.0.1" is the address of the pod's node, and the pod is not in the host network: it is left out`,
			}},
		"a pod in the host network has the addresses of its node": {
			`spec: {hostNetwork: true}
status: {podIP: 192.168.0.1, hostIP: 192.168.0.1}`,
			name + `ips: "192.168.0.1" host_network: true node_ips: "192.168.0.1"`, nil},
		"a finished pod": {`status: {phase: Succeeded}`, name + `phase: PHASE_SUCCEEDED`, nil},
		"a failed pod":   {`status: {phase: Failed}`, name + `phase: PHASE_FAILED`, nil},
		"a pending pod":  {`status: {phase: Pending}`, name + `phase: PHASE_PENDING`, nil},
		"a lost pod":     {`status: {phase: Unknown}`, name + `phase: PHASE_UNKNOWN`, nil},
		"an unknown phase": {`status: {phase: Sleeping}`, name + `phase: PHASE_UNKNOWN`,
			[]string{`status.phase: "Sleeping" is not a phase: want Pending, Running, Succeeded, Failed or Unknown`}},
		"named ports of containers and sidecars, sorted": {`spec:
  containers:
  - {name: a, ports: [{name: web, containerPort: 80}, {containerPort: 81}, {name: dns, containerPort: 53, protocol: UDP}]}
  - {name: b, ports: [{name: dns, containerPort: 53}, {name: web, containerPort: 80, protocol: TCP}, {name: web, containerPort: 8080}]}
  initContainers:
  - {name: sidecar, restartPolicy: Always, ports: [{name: metrics, containerPort: 9090, protocol: SCTP}]}
  - {name: init, ports: [{name: gone, containerPort: 1}]}`,
			name + `named_ports {name: "dns" protocol: PROTOCOL_TCP port: 53} named_ports {name: "dns" protocol: PROTOCOL_UDP port: 53}
			named_ports {name: "metrics" protocol: PROTOCOL_SCTP port: 9090}
			named_ports {name: "web" protocol: PROTOCOL_TCP port: 80} named_ports {name: "web" protocol: PROTOCOL_TCP port: 8080}`, nil},
		"bad named ports are left out": {`spec:
  containers:
  - {name: a, ports: [{name: web, containerPort: 0}, {name: dns, containerPort: 53, protocol: ICMP}, {name: ok, containerPort: 1}]}
  initContainers:
  - {name: b, restartPolicy: Always, ports: [{name: "80", containerPort: 80}]}`,
			name + `named_ports {name: "ok" protocol: PROTOCOL_TCP port: 1}`, []string{
				`spec.containers[0].ports[0].containerPort: 0 is not a port: want 1 to 65535`,
				`spec.containers[0].ports[1].protocol: "ICMP" is not a protocol: want TCP, UDP or SCTP`,
				`spec.initContainers[0].ports[0].name: "80" is not a port name: want at most 15 lower-case letters, digits and '-', with at least one letter`,
			}},
	} {
		t.Run(title, func(t *testing.T) {
			checkConversion(t, decodeOne(t, samples.Pod(c.in)), model.KindPod, c.want, c.problems)
		})
	}
}

func TestToModelSortsLabelsAndMarksTerminating(t *testing.T) {
	obj := decodeOne(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, deletionTimestamp: '2026-01-02T03:04:05Z', labels: {tier: front, app: web, empty: ''}}")
	checkConversion(t, obj, model.KindPod, `namespace: "shop" name: "web" deleting: true
		labels {key: "app" value: "web"} labels {key: "empty"} labels {key: "tier" value: "front"}`, nil)
}

func TestToModelKeepsUIDOfStaticPods(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: shop, uid: of-the-api%s}"
	for more, want := range map[string]string{
		"": "of-the-api",
		", annotations: {kubernetes.io/config.mirror: of-the-file}": "of-the-file",
		", annotations: {kubernetes.io/config.hash: of-the-file}":   "of-the-api",
	} {
		checkConversion(t, decodeOne(t, fmt.Sprintf(pod, more)), model.KindPod, `namespace: "shop" name: "web" uid: "`+want+`"`, nil)
	}
}

func TestToModelAddsNameLabelOfNamespace(t *testing.T) {
	for labels, want := range map[string]string{
		"":                                     `name: "shop" labels {key: "kubernetes.io/metadata.name" value: "shop"}`,
		"kubernetes.io/metadata.name: another": `name: "shop" labels {key: "kubernetes.io/metadata.name" value: "shop"}`,
		"z: '1', a: '2'":                       `name: "shop" labels {key: "a" value: "2"} labels {key: "kubernetes.io/metadata.name" value: "shop"} labels {key: "z" value: "1"}`,
	} {
		obj := decodeOne(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {"+labels+"}}")
		before := obj.Object.(*corev1.Namespace).DeepCopy()
		checkConversion(t, obj, model.KindNamespace, want, nil)
		if diff := cmp.Diff(before, obj.Object); diff != "" {
			t.Errorf("the object was changed (-before +after):\n%s", diff)
		}
	}
}

func TestToModelRefusesInvalidNames(t *testing.T) {
	meta := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	for want, obj := range map[string]any{
		"<nil> is not a kind that is reflected":      nil,
		"string is not a kind that is reflected":     "text",
		"*v1.Secret is not a kind that is reflected": &corev1.Secret{},
		"*v1.Pod is not a kind that is reflected":    (*corev1.Pod)(nil),
		"Pod: metadata.namespace: is missing":        &corev1.Pod{},
		"NetworkPolicy: metadata.name: is missing":   &networkingv1.NetworkPolicy{ObjectMeta: meta("shop", "")},
		"Pod a/b/web: metadata.namespace: " + `"a/b" is not a name: want lower-case letters, digits and '-', letters or digits at both ends, at most 63`: &corev1.Pod{ObjectMeta: meta("a/b", "web")},
	} {
		msg, problems := ToModel(obj)
		if msg != nil || len(problems) != 1 {
			t.Errorf("%T: message %v and problems %v, want one problem", obj, msg, problems)
		} else if problems[0].Error() != want {
			t.Errorf("problem %q, want %q", problems[0].Error(), want)
		}
	}
}

func TestToModelProblemsHaveSource(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b"}, Status: corev1.PodStatus{PodIP: "x"}}
	msgs, problems := All([]kinds.Object{{Source: "f", Object: pod}, {Source: "g", Object: &corev1.Pod{}}})
	want := []string{`f: Pod a/b: status.podIP: "x" is not an address of a pod or node, it is left out`, "g: Pod: metadata.namespace: is missing"}
	if diff := cmp.Diff(want, samples.Texts(problems)); diff != "" || len(msgs) != 1 {
		t.Errorf("%d messages; problems (-want +got):\n%s", len(msgs), diff)
	}
}

func TestToModelReplacesInvalidUnicode(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", Labels: map[string]string{"x": "a\xffb"}},
		Spec: corev1.PodSpec{NodeName: "\xff"}}
	msg, _ := ToModel(pod)
	if _, err := model.Encode(msg); err != nil {
		t.Error(err)
	}
}

func TestToModelRefusesTooLargeObjects(t *testing.T) {
	labels := map[string]string{}
	for _, c := range "abcdefghijklmnopqrstuvwxyz" {
		labels[string(c)] = strings.Repeat("x", model.MaxValue/20)
	}
	msg, problems := ToModel(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", Labels: labels}})
	want := []string{"Pod a/b: needs 2023716 bytes in the store, the limit is 1556480: split it"}
	if diff := cmp.Diff(want, samples.Texts(problems)); diff != "" || msg != nil {
		t.Errorf("message kept %v; problems (-want +got):\n%s", msg != nil, diff)
	}
}

// encoded returns the canonical bytes of an object that must be convertible.
func encoded(t interface{ Fatalf(string, ...any) }, obj any) []byte {
	msg, problems := ToModel(obj)
	if msg == nil {
		t.Fatalf("refused: %v", problems)
	}
	b, err := model.Encode(msg)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return b
}

func TestToModelValuesAreReadBack(t *testing.T) {
	obj := decodeOne(t, samples.Policy("{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8}}]}]}"))
	msg, _ := ToModel(obj)
	got, err := model.Decode(obj.ID(), encoded(t, obj))
	if err != nil || !proto.Equal(msg, got) {
		t.Errorf("read back %v, %v; want %v", got, err, msg)
	}
}
