package strict

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// Document is one YAML document or one JSON value of a stream.
type Document struct {
	Text []byte
	line int // its first line, from 1
	json bool
}

// Documents splits a stream and drops documents that are empty or contain only comments. It splits
// before parsing, so that an error in one document does not hide the others. It stops soon after
// most documents.
func Documents(stream []byte, most int) []Document {
	stream = bytes.TrimPrefix(stream, []byte("\ufeff"))
	s := splitter{most: most}
	start, line, first := 0, 0, 1
	flush := func(end int) { s.document(stream[start:end], first) }
	for pos := 0; pos < len(stream) && !s.full(); {
		line++
		end := pos + lineLength(stream[pos:])
		switch text := stream[pos:end]; {
		case marker(text, "---"):
			flush(pos)
			start, first = pos+3, line // text behind the marker belongs to the document
		case marker(text, "..."):
			flush(pos)
			start, first = end, line+1
		}
		pos = end
	}
	if !s.full() {
		flush(len(stream))
	}
	return s.docs
}

// splitter collects the documents of a stream.
type splitter struct {
	docs []Document
	most int
}

func (s *splitter) full() bool { return len(s.docs) > s.most }

// marker reports whether a line is a document separator: it starts the line, and nothing or white
// space follows.
func marker(line []byte, m string) bool {
	rest, ok := bytes.CutPrefix(line, []byte(m))
	return ok && (len(rest) == 0 || unicode.IsSpace(rune(rest[0])))
}

// lineLength returns the length of the first line with its end.
func lineLength(b []byte) int {
	if i := bytes.IndexByte(b, '\n'); i >= 0 {
		return i + 1
	}
	return len(b)
}

// document adds the text between two markers: nothing, one YAML document, or any number of JSON
// values.
func (s *splitter) document(text []byte, line int) {
	for len(text) > 0 {
		end := lineLength(text)
		if !skippable(text[:end]) {
			break
		}
		text, line = text[end:], line+1
	}
	switch first := bytes.TrimLeft(text, " \t"); {
	case len(text) == 0:
	case first[0] == '{':
		s.values(text, line)
	default:
		s.docs = append(s.docs, Document{Text: text, line: line})
	}
}

// skippable reports whether a line before a document is blank, a comment or a
// directive of YAML.
func skippable(line []byte) bool {
	if line[0] == '%' {
		return true
	}
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}

// values adds the values of concatenated JSON or JSON lines. Text that is not JSON is kept
// as YAML: a flow mapping is valid, the rest is reported. The next line that begins with a brace
// starts a value again.
func (s *splitter) values(text []byte, line int) {
	for wasted := int64(0); !s.full(); {
		lead := len(text) - len(bytes.TrimLeft(text, " \t\r\n"))
		line += bytes.Count(text[:lead], []byte{'\n'})
		text = text[lead:]
		length, err := valueLength(text)
		if errors.Is(err, io.EOF) { // not io.ErrUnexpectedEOF
			return
		}
		if err != nil {
			wasted += scanned(text, err)
			length = len(text)
			if i := bytes.Index(text, []byte("\n{")); i >= 0 && wasted < maxWasted {
				length = i + 1
			}
		}
		s.docs = append(s.docs, Document{Text: text[:length], line: line, json: err == nil})
		line += bytes.Count(text[:length], []byte{'\n'})
		text = text[length:]
	}
}

// maxWasted is how many bytes of invalid JSON are scanned in total, so that a stream in which every
// line seems to contain all following ones takes no longer than others.
const maxWasted = 64 << 20

// scanned returns how far the decoder got before it failed.
func scanned(text []byte, err error) int64 {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntax.Offset
	}
	return int64(len(text))
}

// valueLength returns the length of the first JSON value, or io.EOF if there is only white space.
func valueLength(text []byte) (int, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return 0, err
	}
	return int(dec.InputOffset()), nil
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// JSON returns the document as JSON, or nil if it is null, or the reason why it cannot be read.
func (d Document) JSON() (raw []byte, reason string) {
	if d.json {
		return d.Text, ""
	}
	raw, err := YAMLToJSON(d.Text)
	if err, ok := errors.AsType[*TooLarge](err); ok {
		return nil, err.Error()
	}
	if err == nil {
		if string(raw) == "null" {
			return nil, ""
		}
		return raw, ""
	}
	return nil, "is not valid " + d.language() + ": " + d.describe(err)
}

func (d Document) language() string {
	if d.Text[0] == '{' {
		return "JSON or YAML"
	}
	return "YAML"
}

// describe returns the first line of an error, with line numbers counted from the beginning of the
// file.
func (d Document) describe(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	text, _, _ = strings.Cut(text, "\n")
	if !yamlLine.MatchString(text) {
		return fmt.Sprintf("%s, in the document from line %d on", text, d.line)
	}
	return yamlLine.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(s[len("line "):])
		return fmt.Sprintf("line %d", n+d.line-1)
	})
}
