package term

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf16"
)

// JSON returns a writer of values in JSON that escapes what encoding/json leaves alone and
// terminals obey: control characters above ASCII, and what turns the direction of writing. Outside
// of strings JSON has none of them. Each Write must have whole characters.
func JSON(w io.Writer) io.Writer { return jsonWriter{w} }

type jsonWriter struct{ w io.Writer }

// Write implements io.Writer.
func (j jsonWriter) Write(p []byte) (int, error) {
	harmful := func(r rune) bool { return r > unicode.MaxASCII && !unicode.IsPrint(r) }
	if strings.IndexFunc(string(p), harmful) < 0 {
		return j.w.Write(p)
	}
	var b strings.Builder
	for _, r := range string(p) {
		if !harmful(r) {
			b.WriteRune(r)
			continue
		}
		for _, half := range utf16.Encode([]rune{r}) {
			_, _ = fmt.Fprintf(&b, "\\u%04x", half) // a strings.Builder accepts every write
		}
	}
	if _, err := io.WriteString(j.w, b.String()); err != nil {
		return 0, err
	}
	return len(p), nil
}
