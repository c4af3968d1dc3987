package manifests

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/plugins/ksr/reflect"
	"github.com/sluice-net/sluice/tests/lab/memstore"

	"github.com/sluice-net/sluice/plugins/ksr/legacy"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

const (
	denyKey = "networkpolicy/shop/" + legacy.DenyName
	allowed = "{podSelector: {}, ingress: [{}]}"
)

// newLegacyDirectoryTest is a Directory that accepts legacy manifests.
func newLegacyDirectoryTest(t *testing.T) *directoryTest {
	dt := &directoryTest{t: t, dir: t.TempDir(), store: memstore.New()}
	dt.d = NewDirectory(dt.dir, reflect.NewReflector(dt.store, memstore.Prefix, discard()), discard(), func(l Load) { dt.load = l }, AcceptLegacy())
	return dt
}

// notes checks the notes of the last report.
func (dt *directoryTest) notes(want ...string) {
	dt.t.Helper()
	got := samples.Texts(dt.load.Notes)
	for i, w := range want {
		if len(got) != len(want) || !strings.Contains(got[i], w) {
			dt.t.Errorf("notes %q, want %q", got, want)
		}
	}
	if len(want) == 0 && len(got) > 0 {
		dt.t.Errorf("notes %q, want none", got)
	}
}

// TestDirectoryFollowsIsolationAnnotation: the annotation and the policies stand
// in files of their own, and either may change.
func TestDirectoryFollowsIsolationAnnotation(t *testing.T) {
	dt := newLegacyDirectoryTest(t)
	dt.write("policy.yaml", samples.LegacyPolicy(allowed))
	dt.sync(nil, "put "+shopKey, "put "+denyKey, "put "+policyKey)
	dt.notes("Namespace shop: is not among the manifests")

	dt.write("shop.yaml", samples.Shop)
	dt.sync(nil, "delete "+denyKey, "delete "+policyKey)
	dt.notes("NetworkPolicy shop/web: had no effect")

	dt.write("shop.yaml", samples.Annotated(samples.DenyAnnotation))
	dt.sync(nil, "put "+denyKey, "put "+policyKey)
	dt.notes()
	dt.sync(nil)

	dt.write("policy.yaml", samples.LegacyPolicy("{podSelector: {}, ingress: [{from: []}]}"))
	dt.sync(nil, "put "+policyKey)
	dt.notes("spec.ingress[0].from: is empty and matched nothing")

	dt.write("policy.yaml", samples.Policy(allowed)) // of today
	dt.sync(nil, "put "+policyKey)
	dt.write("shop.yaml", samples.Shop)
	dt.sync(nil, "delete "+denyKey)

	dt.write("policy.yaml", samples.LegacyPolicy(allowed))
	dt.sync(nil, "delete "+policyKey)
	dt.remove("shop.yaml") // the namespace is implied now, and it is not known what it said
	dt.sync(nil, "put "+denyKey, "put "+policyKey)
	dt.remove("policy.yaml")
	dt.sync(nil, "delete "+shopKey, "delete "+denyKey, "delete "+policyKey)
}

// TestDirectoryLegacyErrorOpensNothing: what was good stays in force, with the
// meaning that it has beside everything else that is in force.
func TestDirectoryLegacyErrorOpensNothing(t *testing.T) {
	const held = "; the last good version of the object stays in force"
	misspelt := "policy.yaml: NetworkPolicy shop/web: spec.ingres: is not a known field: did you mean ingress?" + held

	t.Run("in the namespace", func(t *testing.T) {
		dt := newLegacyDirectoryTest(t)
		dt.write("shop.yaml", samples.Annotated(samples.DenyAnnotation))
		dt.write("policy.yaml", samples.LegacyPolicy(allowed))
		dt.sync(nil, "put "+shopKey, "put "+denyKey, "put "+policyKey)
		dt.write("shop.yaml", "a: b: c")
		dt.sync([]string{"shop.yaml: is not valid YAML: mapping values are not allowed in this context, in the document from line 1 on" + held})
		dt.write("policy.yaml", samples.LegacyPolicy("{podSelector: {}}"))
		dt.sync([]string{"shop.yaml: is not valid YAML: mapping values are not allowed in this context, in the document from line 1 on" + held}, "put "+policyKey)
	})
	t.Run("in a namespace that was not isolated", func(t *testing.T) {
		dt := newLegacyDirectoryTest(t)
		dt.write("shop.yaml", samples.Shop)
		dt.write("policy.yaml", samples.LegacyPolicy(allowed))
		dt.sync(nil, "put "+shopKey)
		dt.write("shop.yaml", "a: b: c")
		dt.sync([]string{"shop.yaml: is not valid YAML: mapping values are not allowed in this context, in the document from line 1 on" + held})
		dt.notes("NetworkPolicy shop/web: had no effect")
	})
	t.Run("in the annotation", func(t *testing.T) {
		dt := newLegacyDirectoryTest(t)
		dt.write("shop.yaml", samples.Shop)
		dt.write("policy.yaml", samples.LegacyPolicy(allowed))
		dt.sync(nil, "put "+shopKey)
		dt.write("shop.yaml", samples.Annotated("{"))
		dt.sync([]string{"shop.yaml: Namespace shop: metadata.annotations[net.beta.kubernetes.io/network-policy]: " + `"{" is not JSON; the namespace is treated as isolated`}, "put "+denyKey, "put "+policyKey)
		dt.write("shop.yaml", samples.Shop)
		dt.sync(nil, "delete "+denyKey, "delete "+policyKey)
	})
	t.Run("in a policy", func(t *testing.T) {
		dt := newLegacyDirectoryTest(t)
		dt.write("shop.yaml", samples.Annotated(samples.DenyAnnotation))
		dt.write("policy.yaml", samples.LegacyPolicy(allowed))
		dt.sync(nil, "put "+shopKey, "put "+denyKey, "put "+policyKey)
		dt.write("policy.yaml", samples.LegacyPolicy("{podSelector: {}, ingres: []}"))
		dt.sync([]string{misspelt})
		dt.write("shop.yaml", samples.Shop) // what is held means what it says there now
		dt.sync([]string{misspelt}, "delete "+denyKey, "delete "+policyKey)
		dt.write("shop.yaml", samples.Annotated(samples.DenyAnnotation))
		dt.sync([]string{misspelt}, "put "+denyKey, "put "+policyKey)
	})
	t.Run("in whom a policy selects", func(t *testing.T) {
		dt := newLegacyDirectoryTest(t)
		dt.write("shop.yaml", samples.Annotated(samples.DenyAnnotation))
		dt.write("policy.yaml", samples.LegacyPolicy(allowed))
		dt.sync(nil, "put "+shopKey, "put "+denyKey, "put "+policyKey)
		dt.write("policy.yaml", samples.LegacyPolicy("{podSelector: {matchLabels: {a: b c}}}"))
		dt.sync([]string{`policy.yaml: NetworkPolicy shop/web: spec.podSelector.matchLabels[a]: "b c" is not a label value` + held})
	})
}

// TestDirectoryKeepsObjectThatBecomesLegacy: it is refused as any version
// that is not read.
func TestDirectoryKeepsObjectThatBecomesLegacy(t *testing.T) {
	dt := newDirectoryTest(t)
	dt.write("policy.yaml", samples.Policy(allowed))
	dt.sync(nil, "put "+shopKey, "put "+policyKey)
	dt.write("policy.yaml", samples.LegacyPolicy(allowed))
	dt.sync([]string{`policy.yaml: NetworkPolicy shop/web: apiVersion: "extensions/v1beta1" is a legacy version, whose meaning depends on the namespace: ` +
		`convert the manifests with "sluicectl convert", or accept them with --accept-legacy; the last good version of the object stays in force`})
}
