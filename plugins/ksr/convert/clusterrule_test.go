package convert

import (
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
)

const (
	atAdminTo    = "spec.egress[0].to[0]"
	toNamespaces = "{namespaces: {}}"
	deniesAll    = "spec.egress[0]: denies everything: it does not allow, and not all of its peers and ports are known"
	allDenied    = "egress {action: ACTION_DENY any_port: true}"
)

// clusterKinds are the three kinds with one egress rule.
var clusterKinds = map[string]struct {
	head   string
	allow  string
	others []string // actions that are known and do not allow
	ports  string   // the list
	yaml   func(egress string) string
}{
	"AdminNetworkPolicy": {adminHead + "priority: 1 " + ofEveryPod, "Allow", []string{"Deny", "Pass"}, "ports", func(egress string) string {
		return adminYAML("{priority: 1, subject: {namespaces: {}}, egress: [" + egress + "]}")
	}},
	"BaselineAdminNetworkPolicy": {baselineHead + ofEveryPod, "Allow", []string{"Deny"}, "ports", func(egress string) string {
		return baselineYAML("{subject: {namespaces: {}}, egress: [" + egress + "]}")
	}},
	"ClusterNetworkPolicy": {tierHead + "priority: 1 " + ofEveryPod, "Accept", []string{"Deny", "Pass"}, "protocols", func(egress string) string {
		return tierYAML("{tier: Admin, priority: 1, subject: {namespaces: {}}, egress: [" + egress + "]}")
	}},
}

func TestClusterPeersOfEgress(t *testing.T) {
	for title, c := range map[string]struct{ peers, want string }{
		"namespaces":        {"{namespaces: {matchLabels: {team: a}}}", `peers {pods {namespaces {match_labels {key: "team" value: "a"}} pods {}}}`},
		"pods":              {"{pods: {namespaceSelector: {matchLabels: {team: a}}, podSelector: {matchLabels: {app: web}}}}", `peers {pods {namespaces {match_labels {key: "team" value: "a"}} pods {match_labels {key: "app" value: "web"}}}}`},
		"nodes":             {"{nodes: {matchExpressions: [{key: gpu, operator: Exists}]}}", `peers {nodes {match_expressions {key: "gpu" operator: OPERATOR_EXISTS}}}`},
		"every node":        {"{nodes: {}}", `peers {nodes {}}`},
		"networks":          {"{networks: ['fd00::/8', 10.0.0.0/8, 0.0.0.0/0]}", `peers {network: "0.0.0.0/0"} peers {network: "10.0.0.0/8"} peers {network: "fd00::/8"}`},
		"keep their order":  {"{nodes: {}}, {networks: [10.0.0.0/8]}, {namespaces: {}}", `peers {nodes {}} peers {network: "10.0.0.0/8"} ` + fromEveryPod},
		"null is not there": {"{namespaces: {}, pods: null, nodes: null, networks: null}", fromEveryPod},
	} {
		for kind, k := range clusterKinds {
			t.Run(title+" of "+kind, func(t *testing.T) {
				in := k.yaml("{action: Deny, to: [" + c.peers + "]}")
				checkConversion(t, decodeOne(t, in), model.KindClusterNetworkPolicy, k.head+"egress {action: ACTION_DENY any_port: true "+c.want+"}", nil)
			})
		}
	}
}

func TestClusterPortsOfV1alpha1(t *testing.T) {
	const ports = `[{portNumber: {port: 80}}, {portNumber: {protocol: UDP, port: 65535}}, {portNumber: {protocol: SCTP, port: 1}}, {namedPort: web},
		{portRange: {start: 1, end: 65535}}, {portRange: {protocol: UDP, start: 5, end: 5}}]`
	for _, kind := range []string{"AdminNetworkPolicy", "BaselineAdminNetworkPolicy"} {
		k := clusterKinds[kind]
		checkConversion(t, decodeOne(t, k.yaml("{action: Allow, to: [{namespaces: {}}], ports: "+ports+"}")), model.KindClusterNetworkPolicy,
			k.head+"egress {action: ACTION_ALLOW "+fromEveryPod+`
			ports {protocol: PROTOCOL_TCP number: 80} ports {protocol: PROTOCOL_UDP number: 65535} ports {protocol: PROTOCOL_SCTP number: 1} ports {name: "web"}
			ports {protocol: PROTOCOL_TCP number: 1 end_port: 65535} ports {protocol: PROTOCOL_UDP number: 5 end_port: 5}}`, nil)
	}
}

func TestClusterPortsOfV1alpha2(t *testing.T) {
	k := clusterKinds["ClusterNetworkPolicy"]
	checkConversion(t, decodeOne(t, k.yaml(`{action: Accept, to: [{pods: {podSelector: {}}}], protocols: [
			{tcp: {destinationPort: {number: 80}}}, {udp: {destinationPort: {number: 53}}}, {sctp: {destinationPort: {number: 1}}},
			{tcp: {destinationPort: {range: {start: 1, end: 65535}}}}, {udp: {destinationPort: {range: {start: 1, end: 2}}}}, {destinationNamedPort: dns}]}`)),
		model.KindClusterNetworkPolicy, k.head+"egress {action: ACTION_ALLOW "+fromEveryPod+`
			ports {protocol: PROTOCOL_TCP number: 80} ports {protocol: PROTOCOL_UDP number: 53} ports {protocol: PROTOCOL_SCTP number: 1}
			ports {protocol: PROTOCOL_TCP number: 1 end_port: 65535} ports {protocol: PROTOCOL_UDP number: 1 end_port: 2} ports {name: "dns"}}`, nil)
}

// TestClusterPortsAbsentAreEveryPort: no list, and null, which is no list.
func TestClusterPortsAbsentAreEveryPort(t *testing.T) {
	for _, k := range clusterKinds {
		for _, ports := range []string{"", ", " + k.ports + ": null"} {
			in := k.yaml("{action: Deny, to: [{namespaces: {}}]" + ports + "}")
			checkConversion(t, decodeOne(t, in), model.KindClusterNetworkPolicy, k.head+"egress {action: ACTION_DENY any_port: true "+fromEveryPod+"}", nil)
		}
	}
}

// checkUnknown checks an unknown part of a rule: a rule that allows ignores it and keeps its other
// parts; any other rule denies everything.
func checkUnknown(t *testing.T, kind, rule, allowed string, problems ...string) {
	t.Helper()
	k := clusterKinds[kind]
	rule = "{action: ACTION, " + strings.ReplaceAll(rule, "PORTS", k.ports) + "}"
	for i := range problems {
		problems[i] = strings.ReplaceAll(problems[i], "PORTS", k.ports)
	}
	checkConversion(t, decodeOne(t, k.yaml(strings.Replace(rule, "ACTION", k.allow, 1))), model.KindClusterNetworkPolicy,
		k.head+"egress {action: ACTION_ALLOW "+allowed+"}", problems)
	for _, action := range k.others {
		checkConversion(t, decodeOne(t, k.yaml(strings.Replace(rule, "ACTION", action, 1))), model.KindClusterNetworkPolicy,
			k.head+allDenied, append(slices.Clip(problems), deniesAll))
	}
	noAction := `spec.egress[0].action: "" is not an action of `
	obj := decodeOne(t, k.yaml(strings.Replace(rule, "ACTION", "''", 1)))
	msg, found := ToModel(obj)
	if len(found) < 2 || !strings.Contains(found[0].Error(), noAction) || found[len(found)-1].Reason != strings.TrimPrefix(deniesAll, "spec.egress[0]: ") {
		t.Errorf("without an action: %v, %v", msg, found)
	}
}

func TestClusterRuleWithUnknownPeerFailsClosed(t *testing.T) {
	const oneOf = atAdminTo + ": must have exactly one of namespaces, pods, nodes, networks and domainNames"
	const oneOfBaseline = atAdminTo + ": must have exactly one of namespaces, pods, nodes and networks"
	const good = "{networks: [10.0.0.0/8]}"
	const goodWant = `peers {network: "10.0.0.0/8"}`
	for title, c := range map[string]struct{ peer, want, problem string }{
		"no field":              {"{}", "peers {}", oneOf},
		"null fields":           {"{namespaces: null, nodes: null}", "peers {}", oneOf},
		"two fields":            {"{namespaces: {}, nodes: {}}", "peers {}", oneOf},
		"networks and pods":     {"{networks: [10.0.0.0/8], namespaces: {}}", "peers {}", oneOf},
		"bad namespaces":        {"{namespaces: {matchLabels: {a: b c}}}", `peers {pods {namespaces {match_expressions {key: "a"}} pods {}}}`, atAdminTo + `.namespaces.matchLabels[a]: "b c" is not a label value`},
		"bad namespaceSelector": {"{pods: {namespaceSelector: {matchExpressions: [{key: a, operator: Gt}]}, podSelector: {}}}", `peers {pods {namespaces {match_expressions {key: "a"}} pods {}}}`, atAdminTo + `.pods.namespaceSelector.matchExpressions[0].operator: "Gt" is not an operator: want In, NotIn, Exists or DoesNotExist`},
		"bad podSelector":       {"{pods: {namespaceSelector: {}, podSelector: {matchLabels: {a b: c}}}}", `peers {pods {namespaces {} pods {match_expressions {key: "a b"}}}}`, atAdminTo + `.pods.podSelector.matchLabels[a b]: "a b" is not a label key`},
		"bad nodes":             {"{nodes: {matchExpressions: [{key: a, operator: In}]}}", `peers {nodes {match_expressions {key: "a"}}}`, atAdminTo + `.nodes.matchExpressions[0].values: must have a value for the operator In`},
		"no network":            {"{networks: [fd00::/8, 10.0.0.0]}", `peers {} peers {network: "fd00::/8"}`, atAdminTo + `.networks[1]: "10.0.0.0" is not a network: want for example 10.0.0.0/8 or 2001:db8::/32`},
		"a prefix too long":     {"{networks: [10.0.0.0/33]}", `peers {}`, atAdminTo + `.networks[0]: "10.0.0.0/33" is not a network: want for example 10.0.0.0/8 or 2001:db8::/32`},
		"leading zeros":         {"{networks: [010.0.0.0/8]}", `peers {}`, atAdminTo + `.networks[0]: "010.0.0.0/8" is not a network: want for example 10.0.0.0/8 or 2001:db8::/32`},
		"a zone":                {"{networks: ['fe80::%eth0/64']}", `peers {}`, atAdminTo + `.networks[0]: "fe80::%eth0/64" is not a network: want for example 10.0.0.0/8 or 2001:db8::/32`},
		"IPv4 in IPv6":          {"{networks: ['::ffff:10.0.0.0/104']}", `peers {}`, atAdminTo + `.networks[0]: "::ffff:10.0.0.0/104" is IPv4 in IPv6 notation: write it as IPv4`},
		"an empty network":      {"{networks: ['']}", `peers {}`, atAdminTo + `.networks[0]: "" is not a network: want for example 10.0.0.0/8 or 2001:db8::/32`},
	} {
		for kind := range clusterKinds {
			t.Run(title+" of "+kind, func(t *testing.T) {
				problem := c.problem
				if problem == oneOf && kind == "BaselineAdminNetworkPolicy" {
					problem = oneOfBaseline
				}
				checkUnknown(t, kind, "to: ["+c.peer+", "+good+"]", "any_port: true "+c.want+goodWant, problem)
			})
		}
	}
	for kind := range clusterKinds {
		for _, to := range []string{"to: []", "to: null", "name: ''"} {
			checkUnknown(t, kind, to, "any_port: true", "spec.egress[0].to: has no peers: write for example namespaces: {} for every pod")
		}
	}
}

func TestClusterPeerOfDomainNameFailsClosed(t *testing.T) {
	const unresolved = atAdminTo + ".domainNames: are not resolved: a rule that allows matches nothing by them"
	for _, kind := range []string{"AdminNetworkPolicy", "ClusterNetworkPolicy"} {
		checkUnknown(t, kind, "to: [{domainNames: ['*.example.org', www.example.org., a_b.example.org, A.Example]}, {nodes: {}}]",
			`any_port: true peers {domain_name: "*.example.org"} peers {domain_name: "A.Example"} peers {domain_name: "a_b.example.org"} peers {domain_name: "www.example.org."} peers {nodes {}}`, unresolved)
		var problems []string
		bad := []string{"example", "*", "*.*.org", "a.*.org", "-a.org", "a..org", "", "a.org/", "_a.org"}
		for i, name := range bad {
			problems = append(problems, atAdminTo+".domainNames["+string(rune('0'+i))+`]: "`+name+`" is not a domain name: want for example www.example.org or *.example.org`)
		}
		checkUnknown(t, kind, "to: [{domainNames: ['"+strings.Join(bad, "', '")+"', b.org]}]",
			"any_port: true "+strings.Repeat("peers {} ", len(bad))+`peers {domain_name: "b.org"}`, append([]string{unresolved}, problems...)...)
	}
}

func TestClusterRuleWithUnknownPortFailsClosed(t *testing.T) {
	const oneOf = "spec.egress[0].PORTS[0]: must be exactly one of a port, a range of ports and a name of a port"
	const noProtocol = ` is not a protocol of a policy: want TCP, UDP or SCTP`
	alpha1 := []string{"AdminNetworkPolicy", "BaselineAdminNetworkPolicy"}
	alpha2 := []string{"ClusterNetworkPolicy"}
	for title, c := range map[string]struct {
		kinds         []string
		port, problem string
	}{
		"no field in v1alpha1":            {alpha1, "{}", oneOf},
		"a number and a name in v1alpha1": {alpha1, "{portNumber: {port: 80}, namedPort: web}", oneOf},
		"a number and a range":            {alpha1, "{portNumber: {port: 80}, portRange: {start: 1, end: 2}}", oneOf},
		"an unknown protocol of a number": {alpha1, "{portNumber: {protocol: ICMP, port: 80}}", `spec.egress[0].ports[0].portNumber.protocol: "ICMP"` + noProtocol},
		"an unknown protocol of a range":  {alpha1, "{portRange: {protocol: tcp, start: 1, end: 2}}", `spec.egress[0].ports[0].portRange.protocol: "tcp"` + noProtocol},
		"no field in v1alpha2":            {alpha2, "{}", oneOf},
		"two protocols":                   {alpha2, "{tcp: {destinationPort: {number: 1}}, udp: {destinationPort: {number: 1}}}", oneOf},
		"a number and a name in v1alpha2": {alpha2, "{sctp: {destinationPort: {number: 1}}, destinationNamedPort: web}", oneOf},
		"a protocol without a port":       {alpha2, "{tcp: {}}", oneOf},
		"a port without a number":         {alpha2, "{udp: {destinationPort: {}}}", oneOf},
		"a number of zero in v1alpha2":    {alpha2, "{udp: {destinationPort: {number: 0}}}", oneOf},
		"a number and a range of it":      {alpha2, "{sctp: {destinationPort: {number: 1, range: {start: 1, end: 2}}}}", oneOf},
		"an empty name in v1alpha2":       {alpha2, "{destinationNamedPort: ''}", oneOf},
	} {
		for _, kind := range c.kinds {
			t.Run(title+" of "+kind, func(t *testing.T) {
				good := map[string]string{"ports": "{portNumber: {port: 80}}", "protocols": "{tcp: {destinationPort: {number: 80}}}"}[clusterKinds[kind].ports]
				checkUnknown(t, kind, "to: [{namespaces: {}}], PORTS: ["+c.port+", "+good+"]",
					fromEveryPod+"ports {invalid: true} ports {protocol: PROTOCOL_TCP number: 80}", c.problem)
			})
		}
	}
	for _, kind := range alpha1 {
		checkUnknown(t, kind, "to: [{namespaces: {}}], ports: []", fromEveryPod+"ports {invalid: true}", "spec.egress[0].ports: must not be empty: leave it out for every port")
	}
}

// TestClusterPortInvalidMatchesNothing: in rules of every action, because its meaning is known.
func TestClusterPortInvalidMatchesNothing(t *testing.T) {
	const name = ": want at most 15 lower-case letters, digits and '-', with at least one letter"
	const notPods = "is a name of ports of pods, and the rule has peers that are not pods: it matches nothing"
	alpha1 := []string{"AdminNetworkPolicy", "BaselineAdminNetworkPolicy"}
	alpha2 := []string{"ClusterNetworkPolicy"}
	for title, c := range map[string]struct {
		kinds                     []string
		to, port, want, at, error string
	}{
		"zero":                         {alpha1, toNamespaces, "{portNumber: {port: 0}}", "protocol: PROTOCOL_TCP", "portNumber.port", "0 is not a port: want 1 to 65535"},
		"no number":                    {alpha1, toNamespaces, "{portNumber: {protocol: UDP}}", "protocol: PROTOCOL_UDP", "portNumber.port", "0 is not a port: want 1 to 65535"},
		"too large":                    {alpha1, toNamespaces, "{portNumber: {port: 65536}}", "protocol: PROTOCOL_TCP", "portNumber.port", "65536 is not a port: want 1 to 65535"},
		"a range from zero":            {alpha1, toNamespaces, "{portRange: {end: 5}}", "protocol: PROTOCOL_TCP", "portRange.start", "0 is not a port: want 1 to 65535"},
		"a range to too much":          {alpha1, toNamespaces, "{portRange: {start: 1, end: 70000}}", "protocol: PROTOCOL_TCP", "portRange.end", "70000 is not a port: want 1 to 65535"},
		"a range that is inverted":     {alpha1, toNamespaces, "{portRange: {protocol: SCTP, start: 6, end: 5}}", "protocol: PROTOCOL_SCTP", "portRange.end", "5 is below the start 6: it matches nothing"},
		"an empty name":                {alpha1, toNamespaces, "{namedPort: ''}", "", "namedPort", `"" is not a port name` + name},
		"a number as a name":           {alpha1, toNamespaces, "{namedPort: '80'}", "", "namedPort", `"80" is not a port name` + name},
		"a name beside nodes":          {alpha1, "{namespaces: {}}, {nodes: {}}", "{namedPort: web}", "", "namedPort", notPods},
		"a name beside networks":       {alpha1, "{networks: [10.0.0.0/8]}", "{namedPort: web}", "", "namedPort", notPods},
		"a negative number":            {alpha2, toNamespaces, "{tcp: {destinationPort: {number: -1}}}", "protocol: PROTOCOL_TCP", "tcp.destinationPort.number", "-1 is not a port: want 1 to 65535"},
		"a number too large":           {alpha2, toNamespaces, "{udp: {destinationPort: {number: 65536}}}", "protocol: PROTOCOL_UDP", "udp.destinationPort.number", "65536 is not a port: want 1 to 65535"},
		"a range without a start":      {alpha2, toNamespaces, "{sctp: {destinationPort: {range: {end: 5}}}}", "protocol: PROTOCOL_SCTP", "sctp.destinationPort.range.start", "0 is not a port: want 1 to 65535"},
		"a range without an end":       {alpha2, toNamespaces, "{tcp: {destinationPort: {range: {start: 5}}}}", "protocol: PROTOCOL_TCP", "tcp.destinationPort.range.end", "0 is not a port: want 1 to 65535"},
		"a range of one port":          {alpha2, toNamespaces, "{tcp: {destinationPort: {range: {start: 5, end: 5}}}}", "protocol: PROTOCOL_TCP", "tcp.destinationPort.range.end", "5 must be above the start 5: it matches nothing"},
		"an inverted range":            {alpha2, toNamespaces, "{tcp: {destinationPort: {range: {start: 6, end: 5}}}}", "protocol: PROTOCOL_TCP", "tcp.destinationPort.range.end", "5 is below the start 6: it matches nothing"},
		"a name in upper case":         {alpha2, toNamespaces, "{destinationNamedPort: Web}", "", "destinationNamedPort", `"Web" is not a port name` + name},
		"a destination beside nodes":   {alpha2, "{nodes: {}}, {namespaces: {}}", "{destinationNamedPort: web}", "", "destinationNamedPort", notPods},
		"a destination beside a block": {alpha2, "{networks: ['::/0']}", "{destinationNamedPort: web}", "", "destinationNamedPort", notPods},
	} {
		for _, kind := range c.kinds {
			t.Run(title+" of "+kind, func(t *testing.T) {
				k := clusterKinds[kind]
				peers := map[string]string{
					toNamespaces: fromEveryPod, "{namespaces: {}}, {nodes: {}}": fromEveryPod + "peers {nodes {}}", "{nodes: {}}, {namespaces: {}}": "peers {nodes {}}" + fromEveryPod,
					"{networks: [10.0.0.0/8]}": `peers {network: "10.0.0.0/8"}`, "{networks: ['::/0']}": `peers {network: "::/0"}`,
				}[c.to]
				for action, want := range map[string]string{k.allow: "ALLOW", "Deny": "DENY"} {
					in := k.yaml("{action: " + action + ", to: [" + c.to + "], " + k.ports + ": [" + c.port + "]}")
					checkConversion(t, decodeOne(t, in), model.KindClusterNetworkPolicy, k.head+"egress {action: ACTION_"+want+" "+peers+" ports {"+c.want+" invalid: true}}",
						[]string{"spec.egress[0]." + k.ports + "[0]." + c.at + ": " + c.error})
				}
			})
		}
	}
}

func TestClusterRuleWithUnknownActionDenies(t *testing.T) {
	for title, c := range map[string]struct{ kind, action, noun, wants string }{
		"Accept of v1alpha2":      {"AdminNetworkPolicy", "Accept", "an AdminNetworkPolicy", "Allow, Deny or Pass"},
		"Pass in the baseline":    {"BaselineAdminNetworkPolicy", "Pass", "a BaselineAdminNetworkPolicy", "Allow or Deny"},
		"Accept in the baseline":  {"BaselineAdminNetworkPolicy", "Accept", "a BaselineAdminNetworkPolicy", "Allow or Deny"},
		"Allow of v1alpha1":       {"ClusterNetworkPolicy", "Allow", "a ClusterNetworkPolicy", "Accept, Deny or Pass"},
		"lower case":              {"ClusterNetworkPolicy", "deny", "a ClusterNetworkPolicy", "Accept, Deny or Pass"},
		"nothing":                 {"AdminNetworkPolicy", "", "an AdminNetworkPolicy", "Allow, Deny or Pass"},
		"an action of the future": {"AdminNetworkPolicy", "Log", "an AdminNetworkPolicy", "Allow, Deny or Pass"},
	} {
		t.Run(title, func(t *testing.T) {
			k := clusterKinds[c.kind]
			in := k.yaml("{action: '" + c.action + "', to: [{networks: [10.0.0.0/8]}]}")
			checkConversion(t, decodeOne(t, in), model.KindClusterNetworkPolicy, k.head+`egress {any_port: true peers {network: "10.0.0.0/8"}}`,
				[]string{`spec.egress[0].action: "` + c.action + `" is not an action of ` + c.noun + ": want " + c.wants + "; what the rule matches is denied"})
		})
	}
}

// TestClusterRuleChecksIngressLikeEgress: with peers that are pods only.
func TestClusterRuleChecksIngressLikeEgress(t *testing.T) {
	for kind, k := range clusterKinds {
		in := strings.Replace(k.yaml("{action: Deny, from: [{}, {namespaces: {}, pods: {namespaceSelector: {}, podSelector: {}}}]}, {action: "+k.allow+", from: []}"), "egress:", "ingress:", 1)
		const oneOf = ": must have exactly one of namespaces and pods"
		t.Run(kind, func(t *testing.T) {
			checkConversion(t, decodeOne(t, in), model.KindClusterNetworkPolicy, k.head+"ingress {action: ACTION_DENY any_port: true} ingress {action: ACTION_ALLOW any_port: true}", []string{
				"spec.ingress[0].from[0]" + oneOf, "spec.ingress[0].from[1]" + oneOf,
				"spec.ingress[0]: denies everything: it does not allow, and not all of its peers and ports are known",
				"spec.ingress[1].from: has no peers: write for example namespaces: {} for every pod",
			})
		})
	}
}

// TestClusterRuleReportsHarmlessErrors: names that are too long, duplicate
// items of a set, and networks that could be shorter.
func TestClusterRuleReportsHarmlessErrors(t *testing.T) {
	for kind, k := range clusterKinds {
		t.Run(kind, func(t *testing.T) {
			in := k.yaml("{name: '" + strings.Repeat("ä", 101) + "', action: Deny, to: [{networks: [10.0.0.0/8, 10.0.0.0/8]}, {networks: ['0000:0000:0000:0000:0000:0001:255.255.255.255/128']}]}" +
				", {name: '" + strings.Repeat("ä", 100) + "', action: Deny, to: [{networks: [10.0.0.0/8]}]}")
			checkConversion(t, decodeOne(t, in), model.KindClusterNetworkPolicy, k.head+`egress {action: ACTION_DENY any_port: true peers {network: "10.0.0.0/8"} peers {network: "::1:ffff:ffff/128"}}
				egress {name: "`+strings.Repeat("ä", 100)+`" action: ACTION_DENY any_port: true peers {network: "10.0.0.0/8"}}`, []string{
				"spec.egress[0].name: has 101 characters, the limit is 100: the rule has no name",
				`spec.egress[0].to[0].networks[1]: "10.0.0.0/8" is there twice`,
				"spec.egress[0].to[1].networks[0]: has 49 characters, the limit is 43: write ::1:ffff:ffff/128",
			})
		})
	}
}

// TestClusterRuleTakesLongestLists: the definitions limit them to 25 or 100.
func TestClusterRuleTakesLongestLists(t *testing.T) {
	for kind, k := range clusterKinds {
		rule := "{action: Deny, to: [" + strings.Repeat("{namespaces: {}}, ", 200) + "{namespaces: {}}]}"
		msg, problems := ToModel(decodeOne(t, k.yaml(strings.Repeat(rule+", ", 200)+rule)))
		p, ok := msg.(*model.ClusterPolicy)
		if !ok || len(problems) > 0 || len(p.Egress) != 201 || len(p.Egress[200].Peers) != 201 {
			t.Errorf("%s: problems %v", kind, problems)
		}
	}
}
