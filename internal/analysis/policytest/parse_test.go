package policytest

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

const header = "apiVersion: sluice/v1\nkind: PolicyTest\n"

// probe is a probe that is right, for files that are about something else.
const probeLine = "probes: [{from: a/b, to: a/c, port: 80, expect: allow}]\n"

func parseOne(t *testing.T, text string) *File {
	t.Helper()
	files, err := Parse("t.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 {
		t.Fatalf("%d files, want 1", len(files))
	}
	return files[0]
}

func TestParseReadsEveryField(t *testing.T) {
	f := parseOne(t, header+`
name: everything
files: [a.yaml, sub]
allowProblems: true
objects:
  - {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
externals:
  internet: 198.51.100.7
  both: [198.51.100.8, "2001:db8::8"]
probes:
  - {from: [shop/web-0, internet], to: app=db, ports: [80, http], protocol: udp, expect: deny}
matrix:
  pods: shop/*
  externals: [both]
  ports: [8080/TCP, 53/udp, http/SCTP, 443, ICMP]
  allow:
    - {from: shop/*, to: both, ports: all}
    - {from: both, to: "*/app in (a, b)", ports: [8080/TCP]}
steps:
  - name: one
    files: b.yaml
    apply: [{kind: Pod}]
    delete: [{kind: NetworkPolicy, namespace: shop, name: x}, {kind: Pod, name: old}, {kind: Namespace, name: z}]
    probes: [{from: 10.0.0.1, to: "::ffff:10.0.0.2", protocol: ICMP, expect: allow}]
  - {}
`)
	addr := netip.MustParseAddr
	if diff := cmp.Diff(map[string][]netip.Addr{"internet": {addr("198.51.100.7")},
		"both": {addr("198.51.100.8"), addr("2001:db8::8")}}, f.Externals, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("externals (-want +got):\n%s", diff)
	}
	if f.Name != "everything" || !f.AllowProblems || f.Source != "t.yaml" {
		t.Errorf("name %q, allowProblems %t, source %q", f.Name, f.AllowProblems, f.Source)
	}
	if diff := cmp.Diff([]string{"a.yaml", "sub"}, f.Start.Files); diff != "" || len(f.Start.Objects) != 1 {
		t.Errorf("start: %d objects, files (-want +got):\n%s", len(f.Start.Objects), diff)
	}
	probe := f.Start.Probes[0]
	if diff := cmp.Diff([]string{"shop/web-0", "internet", "app=db"}, texts(append(probe.From, probe.To...))); diff != "" {
		t.Errorf("ends (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Port{{Number: 80, Protocol: api.UDP}, {Name: "http", Protocol: api.UDP}}, probe.Ports); diff != "" || probe.Expect != Deny {
		t.Errorf("expect %q, ports (-want +got):\n%s", probe.Expect, diff)
	}
	checkMatrix(t, f.Start.Matrix)
	checkSteps(t, f.Steps)
}

func checkMatrix(t *testing.T, m *Matrix) {
	t.Helper()
	ports := []Port{{Number: 8080, Protocol: api.TCP}, {Number: 53, Protocol: api.UDP}, {Name: "http", Protocol: api.SCTP},
		{Number: 443, Protocol: api.TCP}, {Protocol: api.ICMP}}
	if diff := cmp.Diff(ports, m.Ports); diff != "" {
		t.Errorf("ports of the matrix (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"both"}, m.Externals); diff != "" {
		t.Errorf("externals of the matrix (-want +got):\n%s", diff)
	}
	if len(m.Allow) != 2 || !m.Allow[0].AllPorts || m.Allow[1].AllPorts || len(m.Allow[1].Ports) != 1 {
		t.Errorf("allow: %+v", m.Allow)
	}
}

func checkSteps(t *testing.T, steps []Step) {
	t.Helper()
	if len(steps) != 2 || steps[0].Title() != "one" || steps[1].Title() != "steps[1]" {
		t.Fatalf("steps: %+v", steps)
	}
	want := []model.ID{{Kind: model.KindNetworkPolicy, Namespace: "shop", Name: "x"},
		{Kind: model.KindPod, Namespace: "default", Name: "old"}, {Kind: model.KindNamespace, Name: "z"}}
	if diff := cmp.Diff(want, steps[0].Delete); diff != "" {
		t.Errorf("delete (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Port{{Protocol: api.ICMP}}, steps[0].Probes[0].Ports); diff != "" {
		t.Errorf("ports of ICMP (-want +got):\n%s", diff)
	}
	if got := steps[0].Probes[0].To[0].Addr; got != netip.MustParseAddr("10.0.0.2") {
		t.Errorf("a mapped address is read as %s", got)
	}
}

func texts(exprs []Expr) []string {
	var out []string
	for _, e := range exprs {
		out = append(out, e.String())
	}
	return out
}

func TestParseErrorsNameFileAndField(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string
	}{
		"nothing":          {"# only words\n---\n\n", []string{"t.yaml: holds no policy test: want apiVersion sluice/v1, kind PolicyTest"}},
		"not YAML":         {header + "name: [", []string{"t.yaml: is not valid YAML: line 3: did not find expected node content"}},
		"a key twice":      {header + "name: a\nname: b\n", []string{`t.yaml: is not valid YAML: line 4: key "name" already set in map`}},
		"a list":           {"- a\n", []string{"t.yaml: is a list: want a mapping"}},
		"another kind":     {"apiVersion: v1\nkind: Pod\nspec: {}\n", []string{`t.yaml: apiVersion: is "v1": want sluice/v1`, `t.yaml: kind: is "Pod": want PolicyTest`}},
		"asks nothing":     {header, []string{"t.yaml: asks nothing: want probes or a matrix, here or in a step"}},
		"unknown field":    {header + probeLine + "matix: {}\n", []string{"t.yaml: matix: is not a field: want one of apiVersion, kind, name, allowProblems, externals, files, objects, probes, matrix, steps"}},
		"a field's type":   {header + probeLine + "name: 5\nallowProblems: maybe\nsteps: {}\n", []string{"t.yaml: name: is the number 5: want a text, in quotes", `t.yaml: allowProblems: is "maybe": want true or false`, "t.yaml: steps: is a mapping: want a list"}},
		"files":            {header + probeLine + "files: [{}]\n", []string{"t.yaml: files[0]: is a mapping: want a text"}},
		"objects":          {header + probeLine + "objects: [pod.yaml]\n", []string{`t.yaml: objects[0]: is "pod.yaml": want a Kubernetes object`}},
		"apply on the top": {header + probeLine + "apply: []\n", []string{"t.yaml: apply: is not a field"}},

		"external that is no address":   {header + probeLine + "externals: {a: 10.0.0.0/8, b: [], c: 5, d: [10.0.0.1, x], e: fe80::1%eth0}\n", []string{`t.yaml: externals.a: is "10.0.0.0/8": want an IP address`, "t.yaml: externals.b: has no address", "t.yaml: externals.c: is the number 5: want an IP address", `t.yaml: externals.d[1]: is "x": want an IP address`, `t.yaml: externals.e: is "fe80::1%eth0": want an IP address`}},
		"name of an external":           {header + probeLine + "externals: {a/b: 10.0.0.1, 10.0.0.2: 10.0.0.2}\n", []string{`t.yaml: externals."10.0.0.2": is not a name`, "t.yaml: externals.a/b: is not a name"}},
		"externals that are no mapping": {header + probeLine + "externals: [a]\n", []string{"t.yaml: externals: is a list: want a mapping"}},

		"probe without anything":     {header + "probes: [{}]\n", []string{"t.yaml: probes[0].from: is missing", "t.yaml: probes[0].to: is missing", "t.yaml: probes[0].port: is missing", "t.yaml: probes[0].expect: is missing: want allow or deny"}},
		"probe with an unknown word": {header + "probes: [{from: a/b, to: a/c, port: 80, expect: permit}]\n", []string{`t.yaml: probes[0].expect: is "permit": want allow or deny`}},
		"probe with an unknown field": {header + "steps: [{probes: [{from: a/b, to: a/c, prot: 80, port: 80, expect: allow}]}]\n",
			[]string{"t.yaml: steps[0].probes[0].prot: is not a field: want one of from, to, protocol, port, ports, expect"}},
		"probe that is none":   {header + "probes: [ping]\n", []string{`t.yaml: probes[0]: is "ping": want a mapping`}},
		"port and ports":       {header + "probes: [{from: a/b, to: a/c, port: 80, ports: [81], expect: allow}]\n", []string{"t.yaml: probes[0].ports: must not be there beside port"}},
		"ports without a port": {header + "probes: [{from: a/b, to: a/c, ports: [], expect: allow}]\n", []string{"t.yaml: probes[0].ports: is empty"}},
		"ICMP with a port":     {header + "probes: [{from: a/b, to: a/c, port: 80, protocol: ICMP, expect: allow}]\n", []string{"t.yaml: probes[0].protocol: is ICMP, which has no ports"}},
		"unknown protocol":     {header + "probes: [{from: a/b, to: a/c, port: 80, protocol: GRE, expect: allow}]\n", []string{`t.yaml: probes[0].protocol: is "GRE": want TCP, UDP, SCTP or ICMP`}},
		"port out of range": {header + "probes: [{from: a/b, to: a/c, ports: [0, 65536, -1, 1.5, a_b, {}], expect: allow}]\n", []string{
			"t.yaml: probes[0].ports[0]: is the number 0: want a number from 1 to 65535 or the name of a port", "t.yaml: probes[0].ports[1]: is the number 65536", "t.yaml: probes[0].ports[2]: is the number -1",
			"t.yaml: probes[0].ports[3]: is the number 1.5", `t.yaml: probes[0].ports[4]: is "a_b"`, "t.yaml: probes[0].ports[5]: is a mapping"}},
		"endpoints": {header + "externals: {internet: 198.51.100.7}\nprobes: [{from: [intranet, shop/, 10.0.0.0/8, 'fe80::1%eth0', 'app in (a', 5, ''], to: a/c, port: 80, expect: allow}]\n", []string{
			`t.yaml: probes[0].from[0]: "intranet" is neither an external of this file nor an address, nor of the form namespace/pod or key=value`,
			`t.yaml: probes[0].from[1]: "shop/" has no pod: want for example shop/web-0, shop/app=web or shop/*`,
			`t.yaml: probes[0].from[2]: "10.0.0.0/8" is a prefix: want one address of it, such as 10.0.0.0`,
			`t.yaml: probes[0].from[3]: "fe80::1%eth0" is an address with a zone`,
			`t.yaml: probes[0].from[4]: "app in (a" is not a pod, and not a label selector: `,
			"t.yaml: probes[0].from[5]: is the number 5: want an endpoint",
			`t.yaml: probes[0].from[6]: "" is neither`}},

		"matrix that is none": {header + "matrix: []\n", []string{"t.yaml: matrix: is a list: want a mapping"}},
		"matrix with an unknown external": {header + "matrix: {externals: [x]}\n",
			[]string{`t.yaml: matrix.externals: has "x", which is not among the externals of the file`}},
		"matrix with bad ports": {header + "matrix: {ports: [80/ICMP, /TCP, 80/GRE, 0/TCP, icmp/TCP2, {}]}\n", []string{
			`t.yaml: matrix.ports[0]: is "80/ICMP": want for example 8080/TCP`, "t.yaml: matrix.ports[1]", "t.yaml: matrix.ports[2]", "t.yaml: matrix.ports[3]", "t.yaml: matrix.ports[4]", "t.yaml: matrix.ports[5]: is a mapping"}},
		"matrix with empty lists": {header + "matrix: {ports: [], pods: []}\n", []string{"t.yaml: matrix.ports: is empty", "t.yaml: matrix.pods: is empty"}},
		"allow without anything":  {header + "matrix: {allow: [{}]}\n", []string{"t.yaml: matrix.allow[0].from: is missing", "t.yaml: matrix.allow[0].to: is missing", "t.yaml: matrix.allow[0].ports: is missing: want a list of ports, or all"}},
		"allow with empty ports":  {header + "matrix: {allow: [{from: a/b, to: a/c, ports: []}]}\n", []string{"t.yaml: matrix.allow[0].ports: is empty"}},
		"allow that expects":      {header + "matrix: {allow: [{from: a/b, to: a/c, ports: all, expect: allow}]}\n", []string{"t.yaml: matrix.allow[0].expect: is not a field: want one of from, to, ports"}},
		"allow that is none":      {header + "matrix: {allow: [all]}\n", []string{`t.yaml: matrix.allow[0]: is "all": want a mapping`}},

		"step that is none": {header + probeLine + "steps: [x]\n", []string{`t.yaml: steps[0]: is "x": want a mapping`}},
		"delete": {header + probeLine + "steps: [{delete: [{kind: Deployment, name: x}, {kind: Pod}, {kind: Namespace, namespace: a, name: b}, x, {kind: Pod, name: x, uid: y}]}]\n", []string{
			`t.yaml: steps[0].delete[0].kind: is "Deployment": want one of Node, Namespace, Pod, NetworkPolicy, AdminNetworkPolicy, BaselineAdminNetworkPolicy, ClusterNetworkPolicy`, "t.yaml: steps[0].delete[1].name: is missing",
			"t.yaml: steps[0].delete[2].namespace: must not be there", `t.yaml: steps[0].delete[3]: is "x": want a mapping`, "t.yaml: steps[0].delete[4].uid: is not a field"}},
		"delete of a cluster-scoped policy in a namespace": {header + probeLine + "steps: [{delete: [{kind: AdminNetworkPolicy, namespace: a, name: b}]}]\n",
			[]string{"t.yaml: steps[0].delete[0].namespace: must not be there: AdminNetworkPolicy is a kind without namespace"}},
		"a word that YAML reads as a boolean": {header + probeLine + "steps: [{delete: [{kind: Pod, name: y}]}]\n", []string{"t.yaml: steps[0].delete[0].name: is true: want a text, in quotes", "t.yaml: steps[0].delete[0].name: is missing"}},
		"objects in a step":                   {header + probeLine + "steps: [{objects: []}]\n", []string{"t.yaml: steps[0].objects: is not a field: want one of name, files, apply, probes, matrix, delete"}},
		"the second document": {header + probeLine + "---\n" + header + "nam: x\n" + probeLine + "--- # third\n\n  {\n", []string{
			"t.yaml (document 2): nam: is not a field", "t.yaml (document 3): is not valid JSON or YAML: line 11:"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Parse("t.yaml", []byte(tc.text))
			var problems Problems
			if !errors.As(err, &problems) {
				t.Fatalf("error is %v, want Problems", err)
			}
			if len(problems) != len(tc.want) {
				t.Fatalf("%d problems, want %d:\n%v", len(problems), len(tc.want), err)
			}
			for i, p := range problems {
				if !strings.HasPrefix(p.Error(), tc.want[i]) {
					t.Errorf("problem %d:\n got %s\nwant %s", i, p.Error(), tc.want[i])
				}
			}
		})
	}
}

func TestParseKeepsDocumentsBesideErrors(t *testing.T) {
	files, err := Parse("t.yaml", []byte(header+"---\n"+header+"name: good\n"+probeLine))
	if err == nil || len(files) != 1 || files[0].Name != "good" {
		t.Errorf("files %v, error %v", files, err)
	}
}

func TestParseReadsJSON(t *testing.T) {
	json := "{\n\t\"apiVersion\": \"sluice/v1\", \"kind\": \"PolicyTest\",\n\t\"probes\": [{\"from\": \"a/b\", \"to\": [\"a/c\"], \"port\": 80, \"expect\": \"deny\"}]\n}\n"
	fromJSON, fromYAML := parseOne(t, json), parseOne(t, header+"probes: [{from: a/b, to: a/c, port: 80, expect: deny}]\n")
	if diff := cmp.Diff(fromYAML, fromJSON, cmp.AllowUnexported(Expr{}), cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); diff != "" {
		t.Errorf("(-YAML +JSON):\n%s", diff)
	}
}

func TestParseNamesTestsByFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkout.yaml")
	if err := os.WriteFile(path, []byte(header+probeLine+"---\n"+header+probeLine), 0o600); err != nil {
		t.Fatal(err)
	}
	files, err := Load(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 2 || files[0].Name != "checkout" || files[1].Source != path+" (document 2)" || files[1].Dir != filepath.Dir(path) {
		t.Errorf("files: %+v", files)
	}
}

func TestParseReadsStandardInput(t *testing.T) {
	files, err := Load(Stdin, strings.NewReader(header+probeLine))
	if err != nil || len(files) != 1 || files[0].Name != "stdin" || files[0].Dir != "." {
		t.Errorf("files %+v, error %v", files, err)
	}
	if _, err := Load(filepath.Join(t.TempDir(), "absent"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v, want %v", err, os.ErrNotExist)
	}
}

// FuzzParse parses anything and runs what is a test, with inline objects only.
func FuzzParse(f *testing.F) {
	shop, err := os.ReadFile(shopFile)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(shop)
	f.Add([]byte(header + probeLine))
	f.Add([]byte(header + miniature))
	f.Add([]byte("--- {}\n---\n{\"apiVersion\": \"sluice/v1\", \"kind\": \"PolicyTest\", \"matrix\": {}}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		files, err := Parse("f.yaml", data)
		if err == nil && len(files) == 0 {
			t.Error("neither a test nor an error")
		}
		for _, file := range files {
			file.Start.Files = nil // never read what a fuzzer thinks of
			for i := range file.Steps {
				file.Steps[i].Files = nil
			}
			report, err := Run(t.Context(), file, []Subject{NewOracle()}, Options{MaxListed: 3})
			if err == nil && report.Probes == 0 {
				t.Errorf("a test that asks nothing passes: %+v", report)
			}
		}
	})
}
