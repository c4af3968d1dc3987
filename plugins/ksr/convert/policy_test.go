package convert

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/tests/lab/samples"
)

const policyHead = `namespace: "shop" name: "web" `

func TestToModelOfPolicies(t *testing.T) {
	const selectsAll = policyHead + "pod_selector {} "
	for title, c := range map[string]struct{ spec, want string }{
		"an empty spec isolates ingress":           {"{podSelector: {}}", selectsAll + "isolates_ingress: true"},
		"without types egress rules isolate too":   {"{podSelector: {}, egress: [{}]}", selectsAll + "isolates_ingress: true isolates_egress: true egress {}"},
		"an empty egress list does not":            {"{podSelector: {}, egress: []}", selectsAll + "isolates_ingress: true"},
		"empty types are no types":                 {"{podSelector: {}, policyTypes: [], egress: [{}]}", selectsAll + "isolates_ingress: true isolates_egress: true egress {}"},
		"both types":                               {"{podSelector: {}, policyTypes: [Egress, Ingress]}", selectsAll + "isolates_ingress: true isolates_egress: true"},
		"rules of the other direction are ignored": {"{podSelector: {}, policyTypes: [Egress], ingress: [{}]}", selectsAll + "isolates_egress: true"},
		"and those of egress":                      {"{podSelector: {}, policyTypes: [Ingress], egress: [{}], ingress: [{}]}", selectsAll + "isolates_ingress: true ingress {}"},
		"null is the empty selector":               {"{podSelector: null}", selectsAll + "isolates_ingress: true"},
		"empty lists are any":                      {"{podSelector: {}, ingress: [{from: [], ports: []}]}", selectsAll + "isolates_ingress: true ingress {}"},
		"selectors": {`{podSelector: {matchLabels: {b: "2", a: "1"}, matchExpressions: [{key: z, operator: In, values: [y1, x1, y1]}, {key: e, operator: NotIn, values: [""]}, {key: k, operator: Exists}, {key: a, operator: DoesNotExist, values: []}]}}`,
			policyHead + `isolates_ingress: true pod_selector {
				match_labels {key: "a" value: "1"} match_labels {key: "b" value: "2"}
				match_expressions {key: "z" operator: OPERATOR_IN values: "x1" values: "y1"}
				match_expressions {key: "e" operator: OPERATOR_NOT_IN values: ""}
				match_expressions {key: "k" operator: OPERATOR_EXISTS}
				match_expressions {key: "a" operator: OPERATOR_DOES_NOT_EXIST}}`},
		"peers": {`{podSelector: {}, ingress: [{from: [{podSelector: {}}, {namespaceSelector: {}}, {podSelector: {matchLabels: {a: b}}, namespaceSelector: {matchLabels: {c: d}}}]}]}`,
			selectsAll + `isolates_ingress: true ingress {
				peers {pod_selector {}} peers {namespace_selector {}}
				peers {pod_selector {match_labels {key: "a" value: "b"}} namespace_selector {match_labels {key: "c" value: "d"}}}}`},
		"blocks": {`{podSelector: {}, policyTypes: [Egress], egress: [{to: [{ipBlock: {cidr: 10.0.0.0/8, except: [10.9.0.0/16, 10.1.0.0/16, 10.9.0.0/16]}}, {ipBlock: {cidr: "fd00::/8", except: []}}, {ipBlock: {cidr: 0.0.0.0/0}}, {ipBlock: {cidr: "::/0"}}]}]}`,
			selectsAll + `isolates_egress: true egress {
				peers {ip_block {cidr: "10.0.0.0/8" except: "10.1.0.0/16" except: "10.9.0.0/16"}} peers {ip_block {cidr: "fd00::/8"}}
				peers {ip_block {cidr: "0.0.0.0/0"}} peers {ip_block {cidr: "::/0"}}}`},
		"blocks of old clusters": {`{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: 10.0.0.5/8, except: [10.1.2.3/16]}}, {ipBlock: {cidr: 010.001.000.000/016}}, {ipBlock: {cidr: "::ffff:10.0.0.0/104"}}, {ipBlock: {cidr: "FD00:0::1/8"}}]}]}`,
			selectsAll + `isolates_ingress: true ingress {
				peers {ip_block {cidr: "10.0.0.0/8" except: "10.1.0.0/16"}} peers {ip_block {cidr: "10.1.0.0/16"}}
				peers {ip_block {cidr: "10.0.0.0/8"}} peers {ip_block {cidr: "fd00::/8"}}}`},
		"ports": {`{podSelector: {}, ingress: [{ports: [{}, {port: 80}, {port: web, protocol: UDP}, {protocol: SCTP}, {port: 8000, endPort: 8010}, {port: 1, endPort: 1}, {port: 65535, protocol: TCP}]}]}`,
			selectsAll + `isolates_ingress: true ingress {
				ports {protocol: PROTOCOL_TCP} ports {protocol: PROTOCOL_TCP number: 80} ports {protocol: PROTOCOL_UDP name: "web"}
				ports {protocol: PROTOCOL_SCTP} ports {protocol: PROTOCOL_TCP number: 8000 end_port: 8010}
				ports {protocol: PROTOCOL_TCP number: 1 end_port: 1} ports {protocol: PROTOCOL_TCP number: 65535}}`},
		"rules keep their order": {`{podSelector: {}, policyTypes: [Ingress], ingress: [{ports: [{port: 2}]}, {}, {ports: [{port: 1}]}]}`,
			selectsAll + `isolates_ingress: true ingress {ports {protocol: PROTOCOL_TCP number: 2}} ingress {} ingress {ports {protocol: PROTOCOL_TCP number: 1}}`},
	} {
		t.Run(title, func(t *testing.T) {
			checkConversion(t, decodeOne(t, samples.Policy(c.spec)), model.KindNetworkPolicy, c.want, nil)
		})
	}
}

func TestToModelOfInvalidPeerMatchesNothing(t *testing.T) {
	const from = "spec.ingress[0].from[0]"
	const invalid = "peers {pod_selector {match_expressions {key: %q}}}"
	for title, c := range map[string]struct{ peer, want, problem string }{
		"no field":            {"{}", "peers {}", from + ": names no peer: write podSelector, namespaceSelector or ipBlock, or leave the list out for every peer"},
		"null selector only":  {"{podSelector: null}", "peers {}", from + ": names no peer: write podSelector, namespaceSelector or ipBlock, or leave the list out for every peer"},
		"block and selector":  {"{ipBlock: {cidr: 10.0.0.0/8}, namespaceSelector: {}}", "peers {}", from + ": has both an ipBlock and a selector: write two peers"},
		"block without cidr":  {"{ipBlock: {}}", "peers {}", from + ".ipBlock.cidr: is missing: write for example 10.0.0.0/8"},
		"no cidr":             {"{ipBlock: {cidr: 10.0.0.0}}", "peers {}", from + `.ipBlock.cidr: "10.0.0.0" is not a CIDR: want for example 10.0.0.0/8 or 2001:db8::/32`},
		"a prefix too long":   {"{ipBlock: {cidr: 10.0.0.0/33}}", "peers {}", from + `.ipBlock.cidr: "10.0.0.0/33" is not a CIDR: want for example 10.0.0.0/8 or 2001:db8::/32`},
		"except outside":      {"{ipBlock: {cidr: 10.0.0.0/8, except: [10.1.0.0/16, 11.0.0.0/16]}}", "peers {}", from + ".ipBlock.except[1]: 11.0.0.0/16 is not a part of the cidr 10.0.0.0/8: the whole block matches nothing"},
		"except is all":       {"{ipBlock: {cidr: 10.0.0.0/8, except: [10.0.0.0/8]}}", "peers {}", from + ".ipBlock.except[0]: 10.0.0.0/8 is not a part of the cidr 10.0.0.0/8: the whole block matches nothing"},
		"except is more":      {"{ipBlock: {cidr: 10.0.0.0/8, except: [0.0.0.0/0]}}", "peers {}", from + ".ipBlock.except[0]: 0.0.0.0/0 is not a part of the cidr 10.0.0.0/8: the whole block matches nothing"},
		"except of IPv6":      {"{ipBlock: {cidr: 0.0.0.0/0, except: ['fd00::/8']}}", "peers {}", from + ".ipBlock.except[0]: fd00::/8 is not a part of the cidr 0.0.0.0/0: the whole block matches nothing"},
		"except is no CIDR":   {"{ipBlock: {cidr: 10.0.0.0/8, except: [x]}}", "peers {}", from + `.ipBlock.except[0]: "x" is not a CIDR: want for example 10.0.0.0/8 or 2001:db8::/32`},
		"unknown operator":    {"{podSelector: {matchExpressions: [{key: a, operator: in, values: [b]}]}}", fmt.Sprintf(invalid, "a"), from + `.podSelector.matchExpressions[0].operator: "in" is not an operator: want In, NotIn, Exists or DoesNotExist`},
		"no operator":         {"{podSelector: {matchExpressions: [{key: a}]}}", fmt.Sprintf(invalid, "a"), from + `.podSelector.matchExpressions[0].operator: "" is not an operator: want In, NotIn, Exists or DoesNotExist`},
		"In without values":   {"{podSelector: {matchExpressions: [{key: a, operator: In}]}}", fmt.Sprintf(invalid, "a"), from + ".podSelector.matchExpressions[0].values: must have a value for the operator In"},
		"NotIn without":       {"{podSelector: {matchExpressions: [{key: a, operator: NotIn, values: []}]}}", fmt.Sprintf(invalid, "a"), from + ".podSelector.matchExpressions[0].values: must have a value for the operator NotIn"},
		"Exists with values":  {"{podSelector: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}", fmt.Sprintf(invalid, "a"), from + ".podSelector.matchExpressions[0].values: must be empty for the operator Exists"},
		"a bad key":           {"{podSelector: {matchExpressions: [{key: a b, operator: Exists}]}}", fmt.Sprintf(invalid, "a b"), from + `.podSelector.matchExpressions[0].key: "a b" is not a label key`},
		"no key":              {"{podSelector: {matchExpressions: [{operator: DoesNotExist}]}}", fmt.Sprintf(invalid, ""), from + `.podSelector.matchExpressions[0].key: "" is not a label key`},
		"a bad value":         {"{podSelector: {matchExpressions: [{key: a, operator: NotIn, values: [b, c d]}]}}", fmt.Sprintf(invalid, "a"), from + `.podSelector.matchExpressions[0].values[1]: "c d" is not a label value`},
		"a bad matched key":   {"{podSelector: {matchLabels: {a b: c}}}", fmt.Sprintf(invalid, "a b"), from + `.podSelector.matchLabels[a b]: "a b" is not a label key`},
		"a bad matched value": {"{podSelector: {matchLabels: {a: b c}}}", fmt.Sprintf(invalid, "a"), from + `.podSelector.matchLabels[a]: "b c" is not a label value`},
		"of two selectors": {"{podSelector: {}, namespaceSelector: {matchLabels: {ok: y1, a: b c}}}",
			`peers {pod_selector {} namespace_selector {match_labels {key: "ok" value: "y1"} match_expressions {key: "a"}}}`, from + `.namespaceSelector.matchLabels[a]: "b c" is not a label value`},
	} {
		t.Run(title, func(t *testing.T) {
			obj := decodeOne(t, samples.Policy("{podSelector: {}, ingress: [{from: ["+c.peer+"]}]}"))
			want := policyHead + "pod_selector {} isolates_ingress: true ingress {" + c.want + "}"
			checkConversion(t, obj, model.KindNetworkPolicy, want, []string{c.problem})
		})
	}
}

func TestToModelOfInvalidPortMatchesNothing(t *testing.T) {
	const wantName = ": want at most 15 lower-case letters, digits and '-', with at least one letter, or a number without quotes"
	for title, c := range map[string]struct{ port, protocol, problem string }{
		"zero":                  {"{port: 0}", "TCP", "port: 0 is not a port: want 1 to 65535"},
		"negative":              {"{port: -1, protocol: UDP}", "UDP", "port: -1 is not a port: want 1 to 65535"},
		"too large":             {"{port: 65536}", "TCP", "port: 65536 is not a port: want 1 to 65535"},
		"a number as a text":    {`{port: "80"}`, "TCP", `port: "80" is not a port name` + wantName},
		"an empty name":         {`{port: ""}`, "TCP", `port: "" is not a port name` + wantName},
		"a name too long":       {`{port: abcdefghijklmnop}`, "TCP", `port: "abcdefghijklmnop" is not a port name` + wantName},
		"a name in upper case":  {`{port: Web}`, "TCP", `port: "Web" is not a port name` + wantName},
		"endPort without port":  {"{endPort: 90}", "TCP", "endPort: needs a port"},
		"endPort of a name":     {"{port: web, endPort: 90}", "TCP", "endPort: needs a port that is a number"},
		"endPort below":         {"{port: 91, endPort: 90}", "TCP", "endPort: 90 is below the port 91"},
		"endPort too large":     {"{port: 91, endPort: 65536}", "TCP", "endPort: 65536 is not a port: want 1 to 65535"},
		"endPort zero":          {"{port: 91, endPort: 0}", "TCP", "endPort: 0 is not a port: want 1 to 65535"},
		"ICMP":                  {"{protocol: ICMP}", "TCP", `protocol: "ICMP" is not a protocol of a policy: want TCP, UDP or SCTP`},
		"tcp":                   {"{protocol: tcp, port: 80}", "TCP", `protocol: "tcp" is not a protocol of a policy: want TCP, UDP or SCTP`},
		"an empty protocol":     {`{protocol: "", port: 80}`, "TCP", `protocol: "" is not a protocol of a policy: want TCP, UDP or SCTP`},
		"everything wrong once": {"{protocol: x, port: 0, endPort: -1}", "TCP", `protocol: "x" is not a protocol of a policy: want TCP, UDP or SCTP`},
	} {
		t.Run(title, func(t *testing.T) {
			obj := decodeOne(t, samples.Policy("{podSelector: {}, policyTypes: [Egress], egress: [{ports: [{port: 1}]}, {ports: ["+c.port+"]}]}"))
			want := policyHead + "pod_selector {} isolates_egress: true egress {ports {protocol: PROTOCOL_TCP number: 1}} egress {ports {protocol: PROTOCOL_" + c.protocol + " invalid: true}}"
			checkConversion(t, obj, model.KindNetworkPolicy, want, []string{"spec.egress[1].ports[0]." + c.problem})
		})
	}
}

func TestToModelRefusesUnknownPolicyTypes(t *testing.T) {
	for spec, want := range map[string][]string{
		"{podSelector: {matchExpressions: [{key: a, operator: In}]}, ingress: [{from: [{}]}]}": {"spec.podSelector.matchExpressions[0].values: must have a value for the operator In"},
		"{podSelector: {matchLabels: {a: b c}}}":                                               {`spec.podSelector.matchLabels[a]: "b c" is not a label value`},
		"{podSelector: {}, policyTypes: [ingress]}":                                            {`spec.policyTypes[0]: "ingress" is not a policy type: want Ingress or Egress`},
		"{podSelector: {}, policyTypes: [Egress, Both]}":                                       {`spec.policyTypes[1]: "Both" is not a policy type: want Ingress or Egress`},
	} {
		checkConversion(t, decodeOne(t, samples.Policy(spec)), model.KindNetworkPolicy, "", want)
	}
}

func TestToModelReportsHarmlessErrors(t *testing.T) {
	checkConversion(t, decodeOne(t, samples.Policy("{podSelector: {}, policyTypes: [Ingress, Egress, Ingress]}")), model.KindNetworkPolicy,
		policyHead+"pod_selector {} isolates_ingress: true isolates_egress: true",
		[]string{"spec.policyTypes: has 3 types: write each of Ingress and Egress at most once"})
	checkConversion(t, decodeOne(t, samples.Policy("{podSelector: {}, policyTypes: [Egress], ingress: [{from: [{}]}]}")), model.KindNetworkPolicy,
		policyHead+"pod_selector {} isolates_egress: true",
		[]string{"spec.ingress[0].from[0]: names no peer: write podSelector, namespaceSelector or ipBlock, or leave the list out for every peer"})
}

func TestToModelReportsEveryInvalidField(t *testing.T) {
	obj := decodeOne(t, samples.Policy(`{podSelector: {}, ingress: [{from: [{}, {podSelector: {}}, {ipBlock: {cidr: x}}], ports: [{port: 0}, {port: 80}]}]}`))
	checkConversion(t, obj, model.KindNetworkPolicy, policyHead+`pod_selector {} isolates_ingress: true ingress {
		peers {} peers {pod_selector {}} peers {}
		ports {protocol: PROTOCOL_TCP invalid: true} ports {protocol: PROTOCOL_TCP number: 80}}`, []string{
		"spec.ingress[0].ports[0].port: 0 is not a port: want 1 to 65535",
		"spec.ingress[0].from[0]: names no peer: write podSelector, namespaceSelector or ipBlock, or leave the list out for every peer",
		`spec.ingress[0].from[2].ipBlock.cidr: "x" is not a CIDR: want for example 10.0.0.0/8 or 2001:db8::/32`,
	})
}
