package convert

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/tests/lab/samples"
)

// TestToModelRefusesLegacyByDefault: and the error names the remedy.
func TestToModelRefusesLegacyByDefault(t *testing.T) {
	const do = `convert the manifests with "sluicectl convert", or accept them with --accept-legacy`
	objs, problems := decodeText(strings.NewReader(samples.Annotated(samples.DenyAnnotation)+samples.LegacyPolicy("{podSelector: {}}")), "f")
	want := []string{`f (document 2): NetworkPolicy shop/web: apiVersion: "extensions/v1beta1" is a legacy version, whose meaning depends on the namespace: ` + do}
	if diff := cmp.Diff(want, samples.Texts(problems)); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
	checkConversion(t, objs[0], model.KindNamespace, `name: "shop" labels {key: "kubernetes.io/metadata.name" value: "shop"}`, []string{
		`metadata.annotations[net.beta.kubernetes.io/network-policy]: is a legacy annotation that isolates nothing: ` + do + `, or remove it`})
	checkConversion(t, readLegacy(t, samples.Annotated("{}"))[0], model.KindNamespace, `name: "shop" labels {key: "kubernetes.io/metadata.name" value: "shop"}`, nil)
	checkConversion(t, readLegacy(t, samples.LegacyPolicy("{podSelector: {}}"))[0], model.KindNetworkPolicy, "", []string{
		`apiVersion: "extensions/v1beta1" is a legacy version, whose meaning depends on the namespace: ` + do})
}

// readLegacy decodes with legacy kinds; what is wrong with a document fails the test.
func readLegacy(t *testing.T, in string) []kinds.Object {
	t.Helper()
	p := decode.Reading{Legacy: true}.Bytes([]byte(in), "f")
	for _, r := range p.Refusals {
		t.Fatal(r.Problem)
	}
	return p.Objects
}
