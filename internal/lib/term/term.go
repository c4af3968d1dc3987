// Package term prints tables, colours and progress for terminals, with untrusted text escaped.
//
// # Invariants
//
//   - Colour is used on a terminal only, and never when NO_COLOR is set. What goes to
//     a file or a pipe is plain text with one meaning per line.
//   - Tables fit a terminal's width. What goes elsewhere is whole.
//   - Names, labels and reasons are texts of others: none moves the cursor, changes colours or
//     begins a line, and none is longer than a line can be.
package term

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/sluice-net/sluice/api/model"
)

// Style is how a text looks on a terminal.
type Style string

// The styles, as ANSI codes. Plain adds nothing.
const (
	Plain Style = ""
	Bold  Style = "1"
	Faint Style = "2"
	Red   Style = "31"
	Green Style = "32"
	Amber Style = "33"
	Blue  Style = "36"
)

// Writer writes styled text. It keeps the first error and then writes nothing.
type Writer struct {
	w      io.Writer
	colour bool
	width  int // 0: any
	err    error
}

// NewWriter writes to w, in colour if w is a terminal and NO_COLOR is not set. A terminal has a
// width, to which tables are fitted.
func NewWriter(w io.Writer) *Writer {
	return &Writer{w: w, width: widthOf(w), colour: IsTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// widthOf returns how many characters a line of a terminal has; 0 for what is none, or does not
// say it.
func widthOf(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if width, _, err := term.GetSize(int(f.Fd())); err == nil {
			return width
		}
	}
	return 0
}

// Width returns how many characters a line may have; 0 for any number.
func (w *Writer) Width() int { return w.width }

// SetWidth sets how many characters a line may have; 0 is no limit.
func (w *Writer) SetWidth(width int) { w.width = width }

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// Text is written as it is: it was escaped, or comes from this program alone.
type Text string

// What is longer is cut, so that one text does not hide the others.
const (
	widestText = 4096
	widestCell = 512
)

// escaped returns a text of others as it is written.
func escaped(text string, widest int) Text {
	text = model.Printable(text)
	if n := utf8.RuneCountInString(text); n > widest {
		text = fmt.Sprintf("%s… (%d characters more)", string([]rune(text)[:widest]), n-widest)
	}
	return Text(text)
}

// Printf writes formatted text. Arguments are escaped, unless they are numbers or Text.
func (w *Writer) Printf(format string, args ...any) {
	if w.err != nil {
		return
	}
	safe := make([]any, len(args))
	for i, a := range args {
		safe[i] = safeArgument(a)
	}
	_, w.err = fmt.Fprintf(w.w, format, safe...)
}

func safeArgument(a any) any {
	switch a := a.(type) {
	case Text:
		return a
	case string:
		return escaped(a, widestText)
	case error, fmt.Stringer:
		return escaped(fmt.Sprint(a), widestText)
	}
	switch kind := reflect.ValueOf(a).Kind(); {
	case kind == reflect.Bool, kind >= reflect.Int && kind <= reflect.Complex128:
		return a
	}
	return escaped(fmt.Sprint(a), widestText)
}

// Styled returns the text in a style, or plain where there is no colour. The text is escaped.
func (w *Writer) Styled(s Style, text string) Text {
	return w.styled(s, escaped(text, widestText))
}

func (w *Writer) styled(s Style, text Text) Text {
	if !w.colour || s == Plain || text == "" {
		return text
	}
	return "\x1b[" + Text(s) + "m" + text + "\x1b[0m"
}

// Lines returns a text that is written without a Writer, such as an error, line by line.
func Lines(text string) string {
	lines := strings.Split(text, "\n")
	for i, l := range lines {
		lines[i] = string(escaped(l, widestText))
	}
	return strings.Join(lines, "\n")
}

// Err returns the first error of writing.
func (w *Writer) Err() error { return w.err }

// Progress shows, on a terminal only, what is being done and for how long already, in one
// line that the returned function removes. What is done at once is not shown.
func Progress(w io.Writer, text string) (stop func()) {
	if !IsTerminal(w) {
		return func() {}
	}
	return progress(w, text)
}

func progress(w io.Writer, text string) (stop func()) {
	const widest = 60 // a line that is longer could not be removed
	text = model.Printable(text)
	if r := []rune(text); len(r) > widest {
		text = string(r[:widest-1]) + "…"
	}
	begin, ended, removed := time.Now(), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(removed)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		for {
			select {
			case <-ended:
				_, _ = io.WriteString(w, removeLine)
				return
			case <-ticker.C:
				_, _ = fmt.Fprintf(w, "%s%s, %s", removeLine, text, time.Since(begin).Round(time.Second))
			}
		}
	}()
	return func() {
		close(ended)
		<-removed
	}
}

// removeLine goes to the begin of a line and empties it.
const removeLine = "\r\x1b[K"
