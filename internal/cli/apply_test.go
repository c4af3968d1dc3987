package cli

import (
	"encoding/json"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
)

const policy = `
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web, namespace: shop}
spec: {podSelector: {}}
`

func TestApplyAndDeleteSendObjectsOfManifests(t *testing.T) {
	var got view.Change
	socket := agent(t, map[string]http.HandlerFunc{"POST /v1/change": func(w http.ResponseWriter, r *http.Request) {
		got = view.Change{}
		if err := json.NewDecoder(r.Body).Decode(&got); err != nil {
			t.Error(err)
		}
		says(view.Applied{Put: len(got.Put), Deleted: len(got.Delete), Pending: "no vswitch"})(w, r)
	}})
	code, out, _ := sluicectl(socket, policy, "apply", "-f", "-")
	if code != ExitOK || out != "1 written, 0 deleted, 0 unchanged; not enforced yet: no vswitch\n" {
		t.Errorf("apply: exit code %d, %q", code, out)
	}
	if len(got.Put) != 1 || len(got.Delete) != 0 {
		t.Fatalf("apply sent %+v", got)
	}
	id := model.ID{Kind: model.Kind(got.Put[0].Kind), Namespace: "shop", Name: "web"}
	if v, err := model.Decode(id, got.Put[0].Value); err != nil || !v.(*model.NetworkPolicy).GetIsolatesIngress() {
		t.Errorf("the value is %v, %v", v, err)
	}
	code, out, _ = sluicectl(socket, policy, "delete", "-f", "-")
	if d := cmp.Diff([]view.ChangedObject{{Kind: "networkpolicy", Namespace: "shop", Name: "web"}}, got.Delete); d != "" || len(got.Put) > 0 || code != ExitOK {
		t.Errorf("delete: exit code %d, %q, sent %+v\n%s", code, out, got, d)
	}
}

func TestApplyTakesValidObjectsBesideProblems(t *testing.T) {
	socket := agent(t, map[string]http.HandlerFunc{"POST /v1/change": says(view.Applied{Put: 1, Enforced: true})})
	code, out, errOut := sluicectl(socket, policy+"---\nkind: Pod\n---\n{", "apply", "-f", "-")
	if code != ExitError || strings.Count(out, "problem: stdin") != 2 || !strings.HasSuffix(out, "1 written, 0 deleted, 0 unchanged; enforced\n") {
		t.Errorf("exit code %d, output:\n%s", code, out)
	}
	if errOut != "sluicectl: 2 problems in the manifests; the rest was done\n" {
		t.Errorf("error %q", errOut)
	}
}

// TestApplyAndDeleteNameEachObject in kubectl's words, and what they passed over.
func TestApplyAndDeleteNameEachObject(t *testing.T) {
	socket := agent(t, map[string]http.HandlerFunc{"POST /v1/change": says(view.Applied{Put: 2, Unchanged: 2, Enforced: true, Objects: []view.AppliedObject{
		{Kind: "networkpolicy", Namespace: "shop", Name: "web", Result: "created"},
		{Kind: "pod", Namespace: "shop", Name: "web-0", Result: "configured"},
		{Kind: "clusternetworkpolicy", Name: "guard", Result: "unchanged"},
		{Kind: "namespace", Name: "gone", Result: "not found"},
	}})})
	code, out, errOut := sluicectl(socket, policy+"---\n{apiVersion: apps/v1, kind: Deployment, metadata: {name: foo}}\n", "delete", "-f", "-")
	want := `skipped deployment.apps/foo: not used by policy
networkpolicy.networking.k8s.io/web created (namespace shop)
pod/web-0 configured (namespace shop)
clusternetworkpolicy.policy.networking.k8s.io/guard unchanged
2 written, 0 deleted, 2 unchanged; enforced
`
	if d := cmp.Diff(want, out); d != "" || code != ExitDenied || errOut != "Error: namespace \"gone\" not found\n" {
		t.Errorf("exit code %d, %q (-want +got):\n%s", code, errOut, d)
	}
	if code, _, errOut := sluicectl(socket, policy, "delete", "--ignore-not-found", "-f", "-"); code != ExitOK || errOut != "" {
		t.Errorf("with --ignore-not-found: exit code %d, %q", code, errOut)
	}
	if code, _, errOut := sluicectl(socket, policy+"---\n{", "delete", "-f", "-"); code != ExitError || !strings.Contains(errOut, `"gone" not found`) {
		t.Errorf("beside a problem: exit code %d, %q", code, errOut)
	}
}

// TestApplyOfNothingIsError: it is a mistake in the path or in the file, and no agent is asked.
func TestApplyOfNothingIsError(t *testing.T) {
	empty := t.TempDir()
	for stdin, want := range map[string]string{
		"":                      "sluicectl: -: nothing to do: there is no object\n",
		"---\n# a comment\n---": "sluicectl: -: nothing to do: there is no object\n",
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: foo}}": "skipped deployment.apps/foo: not used by policy\n" +
			"sluicectl: -: nothing to do: it has no object that policy uses (namespaces, pods, nodes, services, policies)\n",
	} {
		for _, command := range []string{"apply", "delete"} {
			if code, out, errOut := sluicectl("/nowhere", stdin, command, "-f", "-"); code != ExitError || out != "" || errOut != want {
				t.Errorf("%s of %q: exit code %d, %q, %q, want %q", command, stdin, code, out, errOut, want)
			}
		}
	}
	if code, _, errOut := sluicectl("/nowhere", "", "apply", "-f", empty); code != ExitError || errOut != "sluicectl: "+filepath.Clean(empty)+": no manifest is there; want files *.yaml, *.yml or *.json\n" {
		t.Errorf("an empty folder: exit code %d, %q", code, errOut)
	}
	skipped := make([]string, 1+maxSkipped)
	for i := range skipped {
		skipped[i] = "{apiVersion: v1, kind: Secret, metadata: {name: a}}"
	}
	if _, _, errOut := sluicectl("/nowhere", strings.Join(skipped, "\n---\n"), "apply", "-f", "-"); !strings.Contains(errOut, "and 1 skipped object more\n") {
		t.Errorf("many are all named: %q", errOut)
	}
}
