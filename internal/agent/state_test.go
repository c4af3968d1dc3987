package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr"
)

// stateOf returns the state that manifests describe.
func stateOf(t testing.TB, manifests string) (s clusterState) {
	t.Helper()
	load, err := ksr.LoadFiles([]string{ksr.Stdin}, strings.NewReader(manifests))
	if err != nil || len(load.Problems) > 0 {
		t.Fatal(err, load.Problems)
	}
	var entries []model.Entry
	for _, o := range load.Objects {
		m, _ := ksr.Convert(o)
		value, err := model.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, model.Entry{Key: model.Key("/x", o.ID()), Value: value})
	}
	entries = append(entries, model.Entry{Key: "/x/k8s/pod/demo/torn", Value: []byte{0xff}}, model.Entry{Key: "/x/k8s/odd"})
	return decodeState("/x", entries)
}

// flows returns what a question is about, as text.
func flows(t testing.TB, s clusterState, q view.Question) (out []string) {
	t.Helper()
	questions, err := s.questions(q)
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	for _, q := range questions {
		out = append(out, q.src.Name+" "+q.dst.Name+" "+q.flow.String())
	}
	return out
}

func TestQuestionsAreResolvedIntoFlows(t *testing.T) {
	s := stateOf(t, demo)
	v4 := "demo/friend demo/server 10.2.0.2:49152 -> 10.2.0.1:80/tcp"
	for name, tc := range map[string]struct {
		q    view.Question
		want []string
	}{
		"pods and a number":                  {view.Question{Src: "demo/friend", Dst: "demo/server", Port: "80", Protocol: api.TCP}, []string{v4}},
		"a named port":                       {view.Question{Src: "demo/friend", Dst: "demo/server", Port: "http", Protocol: api.TCP}, []string{v4}},
		"an address of a pod":                {view.Question{Src: "10.2.0.2", Dst: "::ffff:10.2.0.1", Port: "http", Protocol: api.TCP}, []string{v4}},
		"a selector in a namespace":          {view.Question{Src: "demo/app=friend", Dst: "demo/app in (server)", Port: "80", Protocol: api.TCP}, []string{v4}},
		"a selector everywhere":              {view.Question{Src: "app=friend", Dst: "app==server", Port: "80", Protocol: api.TCP}, []string{v4}},
		"a label whose key has a slash":      {view.Question{Src: "app=friend", Dst: "app.kubernetes.io/name=server", Port: "80", Protocol: api.TCP}, []string{v4}},
		"the same in a namespace":            {view.Question{Src: "app=friend", Dst: "demo/app.kubernetes.io/name=server", Port: "80", Protocol: api.TCP}, []string{v4}},
		"a label that is there":              {view.Question{Src: "role", Dst: "10.2.0.1", Port: "80", Protocol: api.TCP}, []string{v4, "demo/stranger demo/server 10.2.0.3:49152 -> 10.2.0.1:80/tcp"}},
		"a name that some destinations lack": {view.Question{Src: "demo/friend", Dst: "app in (server, stranger)", Port: "http", Protocol: api.TCP}, []string{v4}},
		"a name of another protocol":         {view.Question{Src: "demo/server", Dst: "demo/friend", Port: "http", Protocol: api.UDP}, []string{"demo/server demo/friend 10.2.0.1:49152 -> 10.2.0.2:53/udp"}},
		"both families":                      {view.Question{Src: "demo/server", Dst: "demo/server", Port: "80", Protocol: api.TCP}, []string{"demo/server demo/server 10.2.0.1:49152 -> 10.2.0.1:80/tcp", "demo/server demo/server [fd00:2::1]:49152 -> [fd00:2::1]:80/tcp"}},
		"outside":                            {view.Question{Src: "2001:db8::1", Dst: "demo/server", Port: "80", Protocol: api.TCP}, []string{"2001:db8::1 demo/server [2001:db8::1]:49152 -> [fd00:2::1]:80/tcp"}},
		"ICMP is that of the family":         {view.Question{Src: "demo/server", Dst: "demo/server", Protocol: api.ICMP}, []string{"demo/server demo/server 10.2.0.1 -> 10.2.0.1/icmp", "demo/server demo/server fd00:2::1 -> fd00:2::1/icmpv6"}},
		"and so is ICMPv6":                   {view.Question{Src: "demo/friend", Dst: "demo/server", Protocol: api.ICMPv6}, []string{"demo/friend demo/server 10.2.0.2 -> 10.2.0.1/icmp"}},
		"a finished pod's address":           {view.Question{Src: "10.2.0.4", Dst: "10.2.0.1", Port: "80", Protocol: api.TCP}, []string{"10.2.0.4 demo/server 10.2.0.4:49152 -> 10.2.0.1:80/tcp"}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, flows(t, s, tc.q)); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

func TestWrongQuestionsSayWhatIsWrong(t *testing.T) {
	s := stateOf(t, demo)
	for want, q := range map[string]view.Question{
		`source: "" is neither an address, nor namespace/pod, nor a selector`:         {Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`source: pod demo/nobody is not known; "sluicectl get pods -n demo" lists`:    {Src: "demo/nobody", Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`source: pod demo/finished has no address that policies see`:                  {Src: "demo/finished", Dst: "demo/server", Port: "80", Protocol: api.TCP},
		`destination: no pod has a label "server"; a pod is named with its namespace`: {Src: "demo/friend", Dst: "server", Port: "80", Protocol: api.TCP},
		`no pod with an address is selected by "app=server" in namespace other`:       {Src: "demo/friend", Dst: "other/app=server", Port: "80", Protocol: api.TCP},
		`no pod with an address is selected by "app=job"`:                             {Src: "demo/friend", Dst: "app=job", Port: "80", Protocol: api.TCP},
		`"app=(" is neither an address`:                                               {Src: "demo/friend", Dst: "app=(", Port: "80", Protocol: api.TCP},
		`destination: demo/server has no udp port that is named "http"`:               {Src: "demo/friend", Dst: "demo/server", Port: "http", Protocol: api.UDP},
		`demo/server has no tcp port that is named "65536"`:                           {Src: "demo/friend", Dst: "demo/server", Port: "65536", Protocol: api.TCP},
		`198.51.100.7 has no tcp port that is named "http"`:                           {Src: "demo/friend", Dst: "198.51.100.7", Port: "http", Protocol: api.TCP},
		`no addresses of one family`:                                                  {Src: "demo/friend", Dst: "fd00:2::1", Port: "80", Protocol: api.TCP},
	} {
		if _, err := s.questions(q); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: the error is %v, want %q in it", q, err, want)
		}
	}
}

func TestAQuestionAboutTooManyFlowsIsRefusedBeforeTheyAreMade(t *testing.T) {
	var s clusterState
	for i := range 3000 {
		s.pods = append(s.pods, &model.Pod{
			Namespace: "demo", Name: "p", Labels: []*model.Label{{Key: "app", Value: "x"}}, Phase: model.Pod_PHASE_RUNNING,
			Ips: []string{"10.0." + string(rune('0'+i%10)) + ".1"},
		})
	}
	_, err := s.questions(view.Question{Src: "app", Dst: "app", Port: "80", Protocol: api.TCP})
	if err == nil || !strings.Contains(err.Error(), "more than 200 flows: name fewer pods") {
		t.Errorf("the error is %v", err)
	}
}

func TestWhatCannotBeDecodedIsLeftOut(t *testing.T) {
	s := stateOf(t, demo)
	if len(s.namespaces) != 1 || len(s.pods) != 4 || len(s.policies) != 1 {
		t.Errorf("%d namespaces, %d pods, %d policies, want 1, 4 and 1", len(s.namespaces), len(s.pods), len(s.policies))
	}
	if got, want := s.counts(), "1 namespaces, 4 pods, 1 policies (pods of 2 nodes: node-1, node-2)"; got != want {
		t.Errorf("counts are %q, want %q", got, want)
	}
}

func TestTheMatrixHasPodsByApplicationAndTheBlocksThatPoliciesName(t *testing.T) {
	s := stateOf(t, demo+`---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: blocks, namespace: demo}
spec:
  podSelector: {}
  egress: [{to: [{ipBlock: {cidr: 203.0.113.0/24, except: [203.0.113.8/32]}}, {ipBlock: {cidr: 10.0.0.0/8}}, {ipBlock: {cidr: 0.0.0.0/0}}]}]
`)
	got := map[string]string{}
	for _, e := range s.endpoints() {
		got[e.Group] = e.Addrs[0].String()
	}
	want := map[string]string{
		"demo/server": "10.2.0.1", "demo/friend": "10.2.0.2", "demo/stranger": "10.2.0.3", "internet": "198.51.100.7",
		"203.0.113.0/24": "203.0.113.1", "203.0.113.8/32": "203.0.113.8", // 10.0.0.0/8 holds pods
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
