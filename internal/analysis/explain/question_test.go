package explain

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/manifests"
	"github.com/sluice-net/sluice/internal/view"
)

// demo is a server that lets one of two clients in, with pods on two nodes and some
// that are not what they seem.
const demo = `
{apiVersion: v1, kind: Namespace, metadata: {name: demo}}
---
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: demo, labels: {app: server, app.kubernetes.io/name: server}}
spec: {nodeName: node-1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 80}]}]}
status: {phase: Running, hostIP: 192.168.0.1, podIPs: [{ip: 10.2.0.1}, {ip: "fd00:2::1"}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, namespace: demo, labels: {app: friend, role: client}}
spec: {nodeName: node-1, containers: [{name: c, image: i, ports: [{name: http, containerPort: 8080}, {name: http, containerPort: 53, protocol: UDP}]}]}
status: {phase: Running, hostIP: 192.168.0.1, podIPs: [{ip: 10.2.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger, namespace: demo, labels: {app: stranger, role: client}}
spec: {nodeName: node-2}
status: {phase: Running, hostIP: 192.168.0.2, podIPs: [{ip: 10.2.0.3}]}
---
apiVersion: v1
kind: Pod
metadata: {name: finished, namespace: demo, labels: {app: job}}
spec: {nodeName: node-1}
status: {phase: Succeeded, podIPs: [{ip: 10.2.0.4}]}
---
apiVersion: v1
kind: Pod
metadata: {name: host, namespace: demo, labels: {app: host}}
spec: {nodeName: node-2, hostNetwork: true}
status: {phase: Running, hostIP: 192.168.0.2, podIPs: [{ip: 192.168.0.2}]}
---
apiVersion: v1
kind: Pod
metadata: {name: waits, namespace: demo, labels: {app: friend}}
spec: {nodeName: node-2}
status: {phase: Pending}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: server, namespace: demo}
spec:
  podSelector: {matchLabels: {app: server}}
  ingress: [{from: [{podSelector: {matchLabels: {app: friend}}}], ports: [{port: http}]}]
`

// manifestsOf returns the cluster that manifests without problems describe.
func manifestsOf(t testing.TB, text string) Manifests {
	t.Helper()
	load, err := manifests.LoadFiles([]string{manifests.Stdin}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	m, problems := FromManifests(load, slog.New(slog.DiscardHandler))
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	return m
}

func clusterOf(t testing.TB, text string) Cluster { return manifestsOf(t, text).Cluster }

// flows returns what a question is about, as text.
func flows(t testing.TB, c Cluster, q view.Question) (out []string) {
	t.Helper()
	questions, err := c.Questions(q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	for _, q := range questions {
		out = append(out, q.Src.Name+" "+q.Dst.Name+" "+q.Flow.String())
	}
	return out
}

func TestQuestionsBecomeFlows(t *testing.T) {
	c := clusterOf(t, demo)
	v4 := "demo/friend demo/server 10.2.0.2:49152 -> 10.2.0.1:80/tcp"
	for name, tc := range map[string]struct {
		q    view.Question
		want []string
	}{
		"pods and a number":                        {view.Question{Src: "demo/friend", Dst: "demo/server", Port: "80", Protocol: api.TCP}, []string{v4}},
		"a named port":                             {view.Question{Src: "demo/friend", Dst: "demo/server", Port: "http", Protocol: api.TCP}, []string{v4}},
		"an address of a pod":                      {view.Question{Src: "10.2.0.2", Dst: "::ffff:10.2.0.1", Port: "http", Protocol: api.TCP}, []string{v4}},
		"a selector in a namespace":                {view.Question{Src: "demo/app=friend", Dst: "demo/app in (server)", Port: "80", Protocol: api.TCP}, []string{v4}},
		"a selector everywhere":                    {view.Question{Src: "app=friend", Dst: "app==server", Port: "80", Protocol: api.TCP}, []string{v4}},
		"a label whose key has a slash":            {view.Question{Src: "app=friend", Dst: "app.kubernetes.io/name=server", Port: "80", Protocol: api.TCP}, []string{v4}},
		"the same in a namespace":                  {view.Question{Src: "app=friend", Dst: "demo/app.kubernetes.io/name=server", Port: "80", Protocol: api.TCP}, []string{v4}},
		"all pods of a namespace":                  {view.Question{Src: "demo/friend", Dst: "demo/*", Port: "80", Protocol: api.TCP}, []string{v4, "demo/friend demo/friend 10.2.0.2:49152 -> 10.2.0.2:80/tcp", "demo/friend demo/stranger 10.2.0.2:49152 -> 10.2.0.3:80/tcp"}},
		"a label that is there":                    {view.Question{Src: "role", Dst: "10.2.0.1", Port: "80", Protocol: api.TCP}, []string{v4, "demo/stranger demo/server 10.2.0.3:49152 -> 10.2.0.1:80/tcp"}},
		"a name that some destinations lack":       {view.Question{Src: "demo/friend", Dst: "app in (server, stranger)", Port: "http", Protocol: api.TCP}, []string{v4}},
		"a name of another protocol":               {view.Question{Src: "demo/server", Dst: "demo/friend", Port: "http", Protocol: api.UDP}, []string{"demo/server demo/friend 10.2.0.1:49152 -> 10.2.0.2:53/udp"}},
		"both families":                            {view.Question{Src: "demo/server", Dst: "demo/server", Port: "80", Protocol: api.TCP}, []string{"demo/server demo/server 10.2.0.1:49152 -> 10.2.0.1:80/tcp", "demo/server demo/server [fd00:2::1]:49152 -> [fd00:2::1]:80/tcp"}},
		"outside":                                  {view.Question{Src: "2001:db8::1", Dst: "demo/server", Port: "80", Protocol: api.TCP}, []string{"2001:db8::1 demo/server [2001:db8::1]:49152 -> [fd00:2::1]:80/tcp"}},
		"ICMP is that of the family":               {view.Question{Src: "demo/server", Dst: "demo/server", Protocol: api.ICMP}, []string{"demo/server demo/server 10.2.0.1 -> 10.2.0.1/icmp", "demo/server demo/server fd00:2::1 -> fd00:2::1/icmpv6"}},
		"and so is ICMPv6":                         {view.Question{Src: "demo/friend", Dst: "demo/server", Protocol: api.ICMPv6}, []string{"demo/friend demo/server 10.2.0.2 -> 10.2.0.1/icmp"}},
		"a pod in the host network is its node":    {view.Question{Src: "demo/host", Dst: "demo/friend", Port: "80", Protocol: api.TCP}, []string{"demo/host demo/friend 192.168.0.2:49152 -> 10.2.0.2:80/tcp"}},
		"a pod that waits meets the first address": {view.Question{Src: "demo/waits", Dst: "demo/server", Port: "80", Protocol: api.TCP}, []string{"demo/waits demo/server invalid AddrPort -> 10.2.0.1:80/tcp"}},
		"and the other way":                        {view.Question{Src: "demo/server", Dst: "demo/waits", Protocol: api.ICMP}, []string{"demo/server demo/waits 10.2.0.1 -> invalid IP/icmp"}},
		"a finished pod's address":                 {view.Question{Src: "10.2.0.4", Dst: "10.2.0.1", Port: "80", Protocol: api.TCP}, []string{"10.2.0.4 demo/server 10.2.0.4:49152 -> 10.2.0.1:80/tcp"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, flows(t, c, tc.q)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestQuestionErrorsSayWhatIsWrong(t *testing.T) {
	c := clusterOf(t, demo)
	for want, q := range map[string]view.Question{
		`source: "" is neither an address, nor namespace/pod, nor a selector`:                                                                  {Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`source: pod demo/nobody is not known; namespace demo has finished, friend, host, server, stranger, waits`:                             {Src: "demo/nobody", Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`source: pod demo/finished has finished: it has no address any more, and policies do not see it`:                                       {Src: "demo/finished", Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`destination: no pod has a label "server"; a pod is named with its namespace`:                                                          {Src: "demo/friend", Dst: "server", Port: "80", Protocol: api.TCP},
		`no pod with an address is selected by "app=server" in namespace other`:                                                                {Src: "demo/friend", Dst: "other/app=server", Port: "80", Protocol: api.TCP},
		`no pod with an address is selected by "app=job"`:                                                                                      {Src: "demo/friend", Dst: "app=job", Port: "80", Protocol: api.TCP},
		`"app=(" is not a pod, and not a label selector: `:                                                                                     {Src: "demo/friend", Dst: "app=(", Port: "80", Protocol: api.TCP},
		`destination: demo/server has no udp port that is named "http"`:                                                                        {Src: "demo/friend", Dst: "demo/server", Port: "http", Protocol: api.UDP},
		`demo/server has no tcp port that is named "65536"`:                                                                                    {Src: "demo/friend", Dst: "demo/server", Port: "65536", Protocol: api.TCP},
		`198.51.100.7 has no tcp port that is named "http"`:                                                                                    {Src: "demo/friend", Dst: "198.51.100.7", Port: "http", Protocol: api.TCP},
		`source: pod nowhere/nobody is not known, and neither is any other of namespace nowhere`:                                               {Src: "nowhere/nobody", Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`"app=job"; what it selects has finished, has no address yet, or is in the host network (name such a pod itself, as in demo/finished)`: {Src: "app=job", Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`named "https", and it is not a number from 0 to 65535; there is http (53/udp), http (8080/tcp)`:                                       {Src: "demo/server", Dst: "demo/friend", Port: "https", Protocol: api.TCP},
		`198.51.100.7 has no tcp port that is named "https", and it is not a number from 0 to 65535; only pods have named ports`:               {Src: "demo/server", Dst: "198.51.100.7", Port: "https", Protocol: api.TCP},
		`source: "10.2.0.0/24" is a prefix: want one address of it, such as 10.2.0.0`:                                                          {Src: "10.2.0.0/24", Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`no pod with an address is selected by "*" in namespace other`:                                                                         {Src: "demo/friend", Dst: "other/*", Port: "80", Protocol: api.TCP},
		`no addresses of one family`: {Src: "demo/friend", Dst: "fd00:2::1", Port: "80", Protocol: api.TCP},
	} {
		if _, err := c.Questions(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: the error is %v, want %q in it", q, err, want)
		}
	}
}

func TestQuestionsRefusesTooManyFlows(t *testing.T) {
	var c Cluster
	for i := range 3000 {
		c.Pods = append(c.Pods, &model.Pod{
			Namespace: "demo", Name: "p", Labels: []*model.Label{{Key: "app", Value: "x"}}, Phase: model.Pod_PHASE_RUNNING,
			Ips: []string{"10.0." + string(rune('0'+i%10)) + ".1"},
		})
	}
	_, err := c.Questions(view.Question{Src: "app", Dst: "app", Port: "80", Protocol: api.TCP})
	if err == nil || !strings.Contains(err.Error(), "more than 200 flows: name fewer pods, for example demo/p and demo/p") {
		t.Errorf("the error is %v", err)
	}
}
