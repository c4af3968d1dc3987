package scenarios_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// TestScenarioErrorsNameLine has one mistake in each file, in the command
// that begins in line 11.
func TestScenarioErrorsNameLine(t *testing.T) {
	for _, tt := range []struct{ command, says string }{
		{"verdict 80", "the command is none of"},
		{"verdicts", "want ports"},
		{"verdicts 80 form=(X)", "is not a port"},
		{"verdicts 80 from=(nobody)", `"nobody" stands for nothing`},
		{"verdicts 80/ICMP", "none of TCP, UDP, SCTP"},
		{"verdicts 0", "is not a port"},
		{"verdicts 80 from=(X@5)", "want @4 or @6"},
		{"allow\nshop/fe shop/web 80", "want FROM -> TO PORT"},
		{"allow\nshop/fe -> shop/web", "want ports"},
		{"allow", "want lines of the form"},
		{"allow X\nshop/fe -> shop/web 80", "is not understood"},
		{"allow\nshop/fe -> shop/nobody 80", "stands for nothing"},
		{"allow\nX -> 9.9.9.9 80", "neither end is a pod"},
		{"allow\nshop/fe -> fd00::1 80", "no addresses of one family"},
		{"explain\nshop/fe -> shop/web eighty", "is not a number"},
		{"pod shop/web 10.1.1.9", "is there already"},
		{"pod shop/new 10.1.1.9 app", `"app" is not understood`},
		{"pod shop/new 10.1.1.9 app=a b=c=d", "is not a label"},
		{"pod shop/new 10.1.1.9 -app=web", "is not a label"},
		{"pod shop/new 10.1.1.9 http=80/ICMP", "none of TCP, UDP, SCTP"},
		{"pod shop/new 10.1.1.9 http=0/TCP", "is not a number"},
		{"pod shop/new 10.1.1.9 HTTP_PORT=80/TCP", "cannot be the name of a port"},
		{"pod shop/new 10.1.1.9 node=n9", "a node that is there"},
		{"pod shop/new 10.1.1.9 phase=Done", `phase "Done" is none of`},
		{"pod shop/new 10.1.1.999", "is not understood"},
		{"pod shopp/new 10.1.1.9", "namespace shopp is not declared"},
		{"pod new 10.1.1.9", "new"},
		{"pod shop/new 10.1.1.9\nmore", "takes no lines"},
		{"label pod shop/nobody app=web", "there is no pod shop/nobody"},
		{"label pod shop/web role-", "no label role to remove"},
		{"label pod shop/web", "want labels"},
		{"label policy shop/web a=b", "none of pod, namespace, node"},
		{"label node n9 a=b", "there is no node n9"},
		{"label node n1 a", "is not a label"},
		{"node n3 192.168.0.3 zone", "is not a label"},
		{"label namespace infra team=a", "there is no namespace infra"},
		{"readdress shop/web", "want an address"},
		{"readdress shop/web 10.1.1.9 soon", "is not understood"},
		{"phase shop/web", "want a phase"},
		{"delete pod shop/nobody", "there is no pod"},
		{"delete policy shop/nobody", "there is no policy"},
		{"delete namespace nobody", "there is no namespace"},
		{"delete anp guard", "there is no anp guard"},
		{"delete banp default", "there is no banp default"},
		{"delete cnp", "want the name of a cnp"},
		{"delete service web", "none of pod, policy, anp, banp, cnp, namespace"},
		{"delete pod shop/web now", "is not understood"},
		{"forget namespace nobody", "there is no namespace"},
		{"node n2 192.168.0.2", "nodes are those of the command cluster"},
		{"external", "want a name"},
		{"service web 80=8080 to=shop/nobody", "there is no pod"},
		{"change", "want lines with statements"},
		{"change\nrelabel pod shop/web a=b", `"relabel" is none of`},
		{"policy shop/web", "want a spec"},
		{"policy web\nfor *\ningress none", "web"},
		{"policy infra/web\nfor *\ningress none", "namespace infra is not declared"},
		{"policy shop/web\npodSelectors: {}", "unknown field"},
		{"policy shop/web\npodSelector: {matchLabels: {app: [a]}}", "matchLabels"},
		{"policy shop/web\nfor *", "want lines that begin with ingress or egress"},
		{"policy shop/web\nfor app=\n=\ningress none", "none of ingress, egress"},
		{"policy shop/web\nfor app in (\ningress none", "selector"},
		{"policy shop/web\nfor *\ningress", "is not complete"},
		{"policy shop/web\nfor *\ningress to pods(*)", "want none, anything"},
		{"policy shop/web\nfor *\ningress from fe", "is not a peer"},
		{"policy shop/web\nfor *\ningress from pods()", "a selector is empty"},
		{"policy shop/web\nfor *\ningress from pods(*) on", "is not a peer"},
		{"policy shop/web\nfor *\ningress on 80-x", "is not a number"},
		{"anp", "want a name"},
		{"anp guard priority=1", "want a spec"},
		{"anp guard\nfor pods(*)", "want priority="},
		{"cnp guard priority=1\nfor pods(*)", "want tier="},
		{"cnp guard tier=Admin\nsubject: {namespaces: {}}", "want priority="},
		{"cnp guard tier=Admin priority=1\npriority: 1", "priority is there twice"},
		{"cnp guard tier=Admin priority=low\nfor pods(*)", "invalid character"},
		{"banp default priority=1\nfor pods(*)", "is not understood"},
		{"anp guard tier=Admin priority=1\nfor pods(*)", "is not understood"},
		{"banp\nsubjects: {}", "unknown field"},
		{"banp\nsubject: {nodes: {}}", "unknown field"},
		{"banp\nsubject: {}\nsubject: {}", "already set"},
		{"banp\nfor app=web", "want pods(SELECTOR)"},
		{"banp\nfor pods(*)\ningres deny from pods(*)", "none of ingress, egress"},
		{"banp\nfor pods(*)\ningress none", "want accept, allow, deny or pass"},
		{"banp\nfor pods(*)\ningress deny to pods(*)", "want accept, allow, deny or pass"},
		{"banp\nfor pods(*)\ningress log from pods(*)", "want accept, allow, deny or pass"},
		{"banp\nfor pods(*)\ningress deny from pods(*) on", "is not a peer"},
		{"banp\nfor pods(*)\ningress deny from nodes(*)", "unknown field"},
		{"banp\nfor pods(*)\negress deny to 10.0.0.0/8, X", "prefixes"},
		{"banp\nfor pods(*)\negress deny to nodes()", "a selector is empty"},
		{"banp\nfor pods(*)\negress deny to domains(example.org)", "unknown field"},
		{"banp\nfor pods(*)\negress deny to pods(*) on */UDP", "1-65535 for all"},
		{"banp\nfor pods(*)\negress deny to pods(*) on http/TCP", "no protocol here"},
		{"banp\nfor pods(*)\negress deny to pods(*) on 80/ICMP", "none of TCP, UDP, SCTP"},
		{"notes of shop", "is not understood"},
		{"operations ovs", "is no kind of dataplane"},
		{"tables", "want the name of a kind of dataplane"},
		{"tables acl all", "is not understood"},
		{"resync now", "is not understood"},
		{"restart n9", `there is no node "n9"`},
		{"restart", "want the name of a node"},
		{"same-as-fresh\nplease", "takes no lines"},
		{"send\nshop/fe -> shop/web", "want ports"},
		{"packet\nshop/fe -> shop/web ping", "a kind of packet"},
		{"problems of shop", "is not understood"},
	} {
		file := write(t, small+"\n"+tt.command+"\n----\n")
		failed, log := watch(t, file, backends.All[0])
		if !failed || !strings.Contains(log, file+":11: ") || !strings.Contains(log, tt.says) {
			t.Errorf("%q fails: %t, wants %q:\n%s", tt.command, failed, tt.says, log)
		}
	}
}

func TestScenarioBeginsWithCluster(t *testing.T) {
	for text, says := range map[string]string{
		"resync\n----\n":                           "a file begins with cluster",
		"pod shop/web 10.1.1.2\n----\n":            "the command is none of",
		"cluster\nnamespace shop\n----\n":          "want at least one node",
		"cluster please\nnode n1 10.0.0.1\n----\n": "is not understood",
		"cluster\nnode n1\n----\n":                 "want an address",
	} {
		if failed, log := watch(t, write(t, text), backends.All[0]); !failed || !strings.Contains(log, says) {
			t.Errorf("%q fails: %t\n%s", text, failed, log)
		}
	}
}
