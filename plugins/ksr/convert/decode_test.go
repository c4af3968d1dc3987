package convert

import (
	"io"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/ksr/decode"
	"github.com/sluice-net/sluice/plugins/ksr/kinds"
)

// decodeText reads the objects of a stream.
func decodeText(r io.Reader, source string) ([]kinds.Object, []api.Problem) {
	p := decode.Reading{}.Read(r, source)
	var problems []api.Problem
	for _, refused := range p.Refusals {
		problems = append(problems, refused.Problem)
	}
	return p.Objects, problems
}
