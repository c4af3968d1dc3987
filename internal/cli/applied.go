package cli

import (
	"strings"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/reflect"
)

func writeApplied(w *term.Writer, a view.Applied) {
	for _, p := range a.Problems {
		w.Printf("%s\n", w.Styled(term.Red, "problem: "+p.Error()))
	}
	writeSkipped(w, a.Skipped)
	for _, o := range a.Objects {
		if o.Result == string(reflect.Absent) {
			continue // reported as an error, or ignored
		}
		in := ""
		if o.Namespace != "" {
			in = " (namespace " + o.Namespace + ")"
		}
		w.Printf("%s %s%s\n", reference(o), o.Result, in)
	}
	w.Printf("%d written, %d deleted, %d unchanged", a.Put, a.Deleted, a.Unchanged)
	switch {
	case a.Enforced:
		w.Printf("; enforced")
	case a.Pending != "":
		w.Printf("; %s", w.Styled(term.Amber, "not enforced yet: "+a.Pending))
	}
	w.Printf("\n")
}

// maxSkipped bounds how many objects are named that policy does not use.
const maxSkipped = 20

func writeSkipped(w *term.Writer, skipped []string) {
	for _, name := range skipped[:min(len(skipped), maxSkipped)] {
		w.Printf("skipped %s: not used by policy\n", name)
	}
	if more := len(skipped) - maxSkipped; more > 0 {
		w.Printf("and %s more\n", term.Count(more, "skipped object"))
	}
}

// notThere returns the objects that could not be deleted, as kubectl names them.
func notThere(objects []view.AppliedObject) (missing notFound) {
	for _, o := range objects {
		if o.Result == string(reflect.Absent) {
			kind, _, _ := strings.Cut(reference(o), "/")
			missing = append(missing, quotedName(kind, o.Namespace, o.Name))
		}
	}
	return missing
}

func reference(o view.AppliedObject) string {
	return kinds.Reference(model.ID{Kind: model.Kind(o.Kind), Namespace: o.Namespace, Name: o.Name})
}
