package decode

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"unicode"
)

// document is one YAML document or one JSON value of a stream.
type document struct {
	text []byte
	line int // its first line, from 1
	json bool
}

// documents splits a stream and leaves out documents that are empty or hold only
// comments. It splits before anything is parsed, so that a mistake in one document
// does not hide the others. It stops some documents after maxDocuments.
func documents(stream []byte) []document {
	stream = bytes.TrimPrefix(stream, []byte("\ufeff"))
	var docs []document
	start, line, first := 0, 0, 1
	flush := func(end int) {
		docs = appendDocument(docs, stream[start:end], first)
	}
	for pos := 0; pos < len(stream) && len(docs) <= maxDocuments; {
		line++
		end := pos + lineLength(stream[pos:])
		switch text := stream[pos:end]; {
		case marker(text, "---"):
			flush(pos)
			start, first = pos+3, line // what stands behind the marker belongs to the document
		case marker(text, "..."):
			flush(pos)
			start, first = end, line+1
		}
		pos = end
	}
	if len(docs) <= maxDocuments {
		flush(len(stream))
	}
	return docs
}

// marker reports whether a line is a marker between documents, which stands at its
// beginning and alone or before white space.
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

// appendDocument appends what stands between two markers: nothing, one YAML
// document, or any number of JSON values.
func appendDocument(docs []document, text []byte, line int) []document {
	for len(text) > 0 {
		end := lineLength(text)
		if !skippable(text[:end]) {
			break
		}
		text, line = text[end:], line+1
	}
	if len(text) == 0 {
		return docs
	}
	if first := bytes.TrimLeft(text, " \t"); first[0] == '{' {
		return appendJSON(docs, text, line)
	}
	return append(docs, document{text: text, line: line})
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

// appendJSON appends the values of concatenated JSON or JSON lines. What is not
// JSON is kept as YAML, of which a flow mapping is valid and the rest is reported;
// after it the next line that begins with a brace is a value again.
func appendJSON(docs []document, text []byte, line int) []document {
	for wasted := int64(0); len(docs) <= maxDocuments; {
		lead := len(text) - len(bytes.TrimLeft(text, " \t\r\n"))
		line += bytes.Count(text[:lead], []byte{'\n'})
		text = text[lead:]
		length, err := valueLength(text)
		if errors.Is(err, io.EOF) { // not io.ErrUnexpectedEOF
			return docs
		}
		if err != nil {
			wasted += scanned(text, err)
			length = len(text)
			if i := bytes.Index(text, []byte("\n{")); i >= 0 && wasted < maxWasted {
				length = i + 1
			}
		}
		docs = append(docs, document{text: text[:length], line: line, json: err == nil})
		line += bytes.Count(text[:length], []byte{'\n'})
		text = text[length:]
	}
	return docs
}

// maxWasted is how many bytes of what is not JSON are looked at, so that a stream
// of which every line seems to hold all that follow takes no longer than others.
const maxWasted = 64 << 20

// scanned returns how far the decoder came before it failed.
func scanned(text []byte, err error) int64 {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return syntax.Offset
	}
	return int64(len(text))
}

// valueLength returns the length of the first JSON value, io.EOF when there is
// only white space.
func valueLength(text []byte) (int, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	var raw json.RawMessage
	if err := dec.Decode(&raw); err != nil {
		return 0, err
	}
	return int(dec.InputOffset()), nil
}
