package manifests

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/tests/lab/memstore"

	"github.com/sluice-net/sluice/tests/lab/samples"
)

// directoryTest is a Directory on real files and a store in memory.
type directoryTest struct {
	t     *testing.T
	dir   string
	store *memstore.Store
	d     *Directory
	load  Load // the last report
}

func newDirectoryTest(t *testing.T) *directoryTest {
	dt := &directoryTest{t: t, dir: t.TempDir(), store: memstore.New()}
	dt.restart()
	return dt
}

// restart makes a new Directory on the same files and store.
func (dt *directoryTest) restart() {
	r := reflect.NewReflector(dt.store, memstore.Prefix, discard())
	dt.d = NewDirectory(dt.dir, r, discard(), func(l Load) { dt.load = l })
}

func (dt *directoryTest) write(name, content string) {
	dt.t.Helper()
	writeFiles(dt.t, dt.dir, map[string]string{name: content})
}

func (dt *directoryTest) remove(name string) {
	dt.t.Helper()
	if err := os.RemoveAll(filepath.Join(dt.dir, name)); err != nil {
		dt.t.Fatal(err)
	}
}

// sync checks the operations of a Sync and the problems that it reports.
func (dt *directoryTest) sync(problems []string, ops ...string) {
	dt.t.Helper()
	if _, err := dt.d.Sync(dt.t.Context()); err != nil {
		dt.t.Errorf("sync: %v", err)
	}
	checkOps(dt.t, dt.store, ops...)
	var got []string
	for _, p := range dt.load.Problems {
		rel, _ := filepath.Rel(dt.dir, p.Source)
		p.Source = rel
		got = append(got, p.Error())
	}
	if diff := cmp.Diff(problems, got); diff != "" {
		dt.t.Errorf("problems (-want +got):\n%s", diff)
	}
}

const (
	policyKey = "networkpolicy/shop/web"
	shopKey   = "namespace/_/shop"
)

func TestDirectoryWritesOnlyChanges(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.sync(nil)
	dt.write("web.yaml", samples.Policy(samples.GoodPolicy))
	dt.sync(nil, "put "+shopKey, "put "+policyKey)
	dt.sync(nil)
	dt.write("web.yaml", "# a comment\n"+samples.Policy(samples.GoodPolicy))
	dt.sync(nil)
	dt.write("web.yaml", samples.Policy("{podSelector: {}}"))
	dt.sync(nil, "put "+policyKey)
	dt.write("shop/ns.yaml", "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n")
	dt.sync(nil, "put "+shopKey)
	dt.remove("web.yaml")
	dt.sync(nil, "delete "+policyKey)
	dt.remove("shop")
	dt.sync(nil, "delete "+shopKey)
	if keys := dt.store.Keys(); len(keys) > 0 {
		t.Errorf("left: %v", keys)
	}
}

func TestDirectoryDeletesObjectsOfValidFiles(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.write("a.yaml", samples.Policy(samples.GoodPolicy)+"---\n"+samples.Namespace("shop")+"---\n"+samples.Namespace("b"))
	dt.sync(nil, "put namespace/_/b", "put "+shopKey, "put "+policyKey)
	dt.write("a.yaml", samples.Policy(samples.GoodPolicy)+"---\n"+samples.Namespace("shop"))
	dt.sync(nil, "delete namespace/_/b")
	dt.write("a.yaml", "# nothing left\n")
	dt.sync(nil, "delete "+shopKey, "delete "+policyKey)
}

func TestDirectoryDeletesNothingOnErrors(t *testing.T) {
	const held = "; the last good version of the object stays in force"
	const heldAll = "; the last good versions of the objects of the file stay in force"
	two := samples.Policy(samples.GoodPolicy) + "---\n" + samples.Namespace("shop")
	for name, c := range map[string]struct{ content, problem string }{
		"a misspelt field":  {samples.Policy("{podSelector: {}, ingres: []}") + "---\n" + samples.Namespace("shop"), "web.yaml (document 1): NetworkPolicy shop/web: spec.ingres: is not a known field: did you mean ingress?" + held},
		"a wrong version":   {"apiVersion: v1\nkind: NetworkPolicy\nmetadata: {name: web, namespace: shop}\n---\n" + samples.Namespace("shop"), `web.yaml (document 1): NetworkPolicy shop/web: apiVersion: "v1" is not the version in which a NetworkPolicy is read: write networking.k8s.io/v1` + held},
		"a bad podSelector": {samples.Policy("{podSelector: {matchLabels: {a: b c}}}") + "---\n" + samples.Namespace("shop"), `web.yaml (document 1): NetworkPolicy shop/web: spec.podSelector.matchLabels[a]: "b c" is not a label value` + held},
		"a misspelt kind":   {"apiVersion: networking.k8s.io/v1\nkind: NetworkPolice\nmetadata: {name: web, namespace: shop}\n---\n" + samples.Namespace("shop"), `web.yaml (document 1): NetworkPolice shop/web: kind: "NetworkPolice" is not a kind of Kubernetes: did you mean NetworkPolicy?` + held},
		"no YAML":           {"a: b: c", "web.yaml: is not valid YAML: mapping values are not allowed in this context, in the document from line 1 on" + heldAll},
		"an empty file":     {"", "web.yaml: cannot be read: it has become empty: remove the file to delete its objects" + heldAll},
	} {
		t.Run(name, func(t *testing.T) {
			dt := newDirectoryTest(t)
			dt.write("web.yaml", two)
			dt.sync(nil, "put "+shopKey, "put "+policyKey)
			dt.write("web.yaml", c.content)
			dt.sync([]string{c.problem})
			dt.sync([]string{c.problem}) // and for as long as it is there
			if got := len(dt.load.Objects); got != 2 {
				t.Errorf("%d objects in force, want 2", got)
			}
			dt.write("web.yaml", two)
			dt.sync(nil)
			dt.write("web.yaml", c.content)
			dt.sync([]string{c.problem})
			dt.remove("web.yaml")
			dt.sync(nil, "delete "+shopKey, "delete "+policyKey)
		})
	}
}

func TestDirectoryAppliesFieldsThatFailClosed(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.write("web.yaml", samples.Policy(samples.GoodPolicy))
	dt.sync(nil, "put "+shopKey, "put "+policyKey)
	dt.write("web.yaml", samples.Policy("{podSelector: {}, ingress: [{from: [{ipBlock: {cidr: x}}]}]}"))
	dt.sync([]string{`web.yaml: NetworkPolicy shop/web: spec.ingress[0].from[0].ipBlock.cidr: "x" is not a CIDR: want for example 10.0.0.0/8 or 2001:db8::/32`}, "put "+policyKey)
}

func TestDirectoryPrefersFilesToKeptVersions(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.write("a.yaml", samples.Policy(samples.GoodPolicy))
	dt.sync(nil, "put "+shopKey, "put "+policyKey)
	dt.write("a.yaml", samples.Policy("{}"))
	dt.write("b.yaml", samples.Policy("{podSelector: {}}"))
	problem := "a.yaml: NetworkPolicy shop/web: spec.podSelector: is missing: write podSelector: {} to select every pod of the namespace; the last good version of the object stays in force"
	dt.sync([]string{problem}, "put "+policyKey)
	if np := dt.load.Objects[0].Object.(*networkingv1.NetworkPolicy); len(np.Spec.Ingress) > 0 {
		t.Errorf("in force is %v", np.Spec)
	}
	dt.remove("b.yaml")
	dt.sync([]string{problem}, "put "+policyKey)
}

func TestDirectoryReplacesRemovedDuplicate(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.write("a.yaml", samples.Policy(samples.GoodPolicy))
	dt.write("b.yaml", samples.Policy("{podSelector: {}}"))
	dt.sync([]string{"b.yaml: NetworkPolicy shop/web: is defined in " + filepath.Join(dt.dir, "a.yaml") + " already: that one stays, remove one of them"},
		"put "+shopKey, "put "+policyKey)
	dt.remove("a.yaml")
	dt.sync(nil, "put "+policyKey)
}

func TestDirectoryLeavesObjectsOfOthers(t *testing.T) {
	dt := newDirectoryTest(t)
	foreign := []byte("labels of an API server")
	dt.store.Put(model.Root(memstore.Prefix)+shopKey, foreign)
	dt.store.Put(model.Root(memstore.Prefix)+"pod/shop/other", foreign)
	dt.write("web.yaml", samples.Policy(samples.GoodPolicy))
	dt.sync(nil, "put "+policyKey)
	dt.remove("web.yaml")
	dt.sync(nil, "delete "+policyKey)
	if diff := cmp.Diff([]string{shopKey, "pod/shop/other"}, dt.store.Keys()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

func TestDirectoryAfterRestartWritesNothing(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.write("web.yaml", samples.Policy(samples.GoodPolicy))
	dt.sync(nil, "put "+shopKey, "put "+policyKey)
	dt.restart()
	dt.sync(nil)
	dt.remove("web.yaml")
	dt.sync(nil, "delete "+shopKey, "delete "+policyKey)
}

func TestDirectorySyncCompletesFailedOne(t *testing.T) {
	gone := errors.New("gone")
	fails := func(dt *directoryTest) {
		t.Helper()
		if _, err := dt.d.Sync(t.Context()); !errors.Is(err, gone) {
			t.Errorf("%v, want %v", err, gone)
		}
	}
	t.Run("of a put", func(t *testing.T) {
		dt := newDirectoryTest(t)
		dt.write("web.yaml", samples.Policy(samples.GoodPolicy))
		dt.store.Fail(gone, nil)
		fails(dt)
		dt.store.Fail(nil, gone)
		fails(dt)
		checkOps(t, dt.store, "put "+shopKey)
		dt.store.Fail(nil, nil)
		dt.sync(nil, "put "+policyKey)
	})
	t.Run("of a put that is not wanted any more", func(t *testing.T) {
		dt := newDirectoryTest(t)
		dt.write("web.yaml", samples.Policy(samples.GoodPolicy))
		dt.store.Fail(nil, gone)
		fails(dt)
		checkOps(t, dt.store, "put "+shopKey)
		dt.store.Fail(nil, nil)
		dt.remove("web.yaml")
		dt.sync(nil, "delete "+shopKey)
	})
	t.Run("of a delete", func(t *testing.T) {
		dt := newDirectoryTest(t)
		dt.write("web.yaml", samples.Policy(samples.GoodPolicy))
		dt.sync(nil, "put "+shopKey, "put "+policyKey)
		dt.remove("web.yaml")
		dt.store.Fail(nil, gone)
		fails(dt)
		checkOps(t, dt.store) // half of it is the marker
		dt.store.Fail(nil, nil)
		dt.sync(nil, "delete "+shopKey, "delete "+policyKey)
	})
}

func TestDirectoryUnreadableDeletesNothing(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.write("sub/web.yaml", samples.Policy(samples.GoodPolicy))
	dt.sync(nil, "put "+shopKey, "put "+policyKey)
	// A link that leads nowhere cannot be read, whoever runs the test.
	dt.remove("sub/web.yaml")
	if err := os.Symlink("nowhere", filepath.Join(dt.dir, "sub", "web.yaml")); err != nil {
		t.Fatal(err)
	}
	dt.sync([]string{"sub/web.yaml: cannot be read: no such file or directory"})
	dt.write("sub/other.yaml", samples.Namespace("other"))
	dt.sync([]string{"sub/web.yaml: cannot be read: no such file or directory"}, "put namespace/_/other")
	if err := os.RemoveAll(dt.dir); err != nil {
		t.Fatal(err)
	}
	if _, err := dt.d.Sync(t.Context()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("sync of no directory: %v", err)
	}
	checkOps(t, dt.store)
}

func adminYAML(spec string) string {
	return "apiVersion: policy.networking.k8s.io/v1alpha1\nkind: AdminNetworkPolicy\nmetadata: {name: web}\nspec: " + spec + "\n"
}

func TestDirectoryKeepsLastValidAdminPolicy(t *testing.T) {
	const key = "adminnetworkpolicy/_/web"
	dt := newDirectoryTest(t)
	dt.write("web.yaml", adminYAML("{priority: 1, subject: {namespaces: {}}, ingress: [{action: Deny, from: [{namespaces: {}}]}]}"))
	dt.write("node.yaml", "apiVersion: v1\nkind: Node\nmetadata: {name: n1}\nstatus: {addresses: [{type: InternalIP, address: 192.168.0.1}]}\n")
	dt.sync(nil, "put "+key, "put node/_/n1")
	dt.write("web.yaml", adminYAML("{priority: 1001, subject: {namespaces: {}}}"))
	dt.sync([]string{"web.yaml: AdminNetworkPolicy web: spec.priority: 1001 is not a priority: want 0 to 1000; the last good version of the object stays in force"})
	dt.write("web.yaml", adminYAML("{priority: 2, subject: {namespaces: {}}}"))
	dt.sync(nil, "put "+key)
	dt.remove("web.yaml")
	dt.remove("node.yaml")
	dt.sync(nil, "delete "+key, "delete node/_/n1")
}
