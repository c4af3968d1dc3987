package ksr

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
)

// Limits against hostile input. They are far above what Kubernetes itself stores.
const (
	maxStream    = 1 << 30   // bytes of one file
	maxYAML      = 32 << 20  // bytes of one YAML document, as it is and with its aliases written out
	maxObject    = 16 << 20  // bytes of one object, as JSON without white space
	maxDocuments = 1_000_000 // documents of one file, and items of one list
	maxListDeep  = 8         // lists within lists
	maxRefusals  = 1_000     // of one file that are told one by one
)

// defaultNamespace is where namespaced manifests without a namespace live.
const defaultNamespace = metav1.NamespaceDefault

// Decode reads the objects of the kinds that Object names from a stream of YAML
// documents or JSON values, which may also be lists such as kubectl writes. Other
// kinds that Kubernetes serves are skipped. Whatever is wrong with a document or
// an object is one Problem; an object with a Problem is not in the result. source
// names the stream in messages.
func Decode(r io.Reader, source string) ([]Object, []api.Problem) {
	var l Load
	m := newMerger(&l, reading{})
	m.add(m.reading.parse(r, source))
	return l.Objects, l.Problems
}

// reading says what is read beside the kinds of today.
type reading struct {
	legacy bool // policies of legacyVersion
	// rest keeps objects of all other kinds, as a *verbatim, and the trees of those
	// that are decoded.
	rest bool
}

// parsed is what one stream held.
type parsed struct {
	objects  []Object
	trees    []map[string]any // of the objects, when the rest is read
	refusals []refusal
	skipped  []string // as in Load
}

// refusal is a document or an object that cannot be used. The ID is zero when it
// is not known which object it was meant to be.
type refusal struct {
	id      model.ID
	problem api.Problem
}

// parser reads one stream.
type parser struct {
	parsed
	reading
	fields fieldCache
	more   int // refusals that are not told one by one
}

func (rd reading) parse(r io.Reader, source string) parsed {
	if info, err := statOf(r); err == nil && info.Mode().IsRegular() && info.Size() > maxStream {
		return tooLong(source) // without reading it
	}
	stream, err := io.ReadAll(io.LimitReader(r, maxStream+1))
	if err != nil {
		return parsed{refusals: []refusal{{problem: unreadable(source, err)}}}
	}
	return rd.parseBytes(stream, source)
}

// statOf returns what is known of a file; other readers are an error.
func statOf(r io.Reader) (fs.FileInfo, error) {
	f, ok := r.(fs.File)
	if !ok {
		return nil, fs.ErrInvalid
	}
	return f.Stat()
}

func tooLong(source string) parsed {
	return parsed{refusals: []refusal{{problem: api.Problem{Source: source,
		Reason: fmt.Sprintf("is larger than the limit of %d bytes: split it", maxStream)}}}}
}

func (rd reading) parseBytes(stream []byte, source string) parsed {
	if len(stream) > maxStream {
		return tooLong(source)
	}
	p := parser{reading: rd, fields: fieldCache{}}
	p.stream(stream, source)
	if p.more > 0 {
		// Without an ID, so that it is not known which objects these were meant to be.
		p.refusals = append(p.refusals, refusal{problem: api.Problem{Source: source,
			Reason: fmt.Sprintf("has %d more documents or objects that cannot be used", p.more)}})
	}
	return p.parsed
}

func (p *parser) refuse(id model.ID, problem api.Problem) {
	if len(p.refusals) == maxRefusals {
		p.more++
		return
	}
	p.refusals = append(p.refusals, refusal{id: id, problem: problem})
}

func (p *parser) stream(stream []byte, source string) {
	docs := documents(stream)
	if len(docs) > maxDocuments {
		docs = docs[:maxDocuments]
		p.refuse(model.ID{}, api.Problem{Source: source,
			Reason: fmt.Sprintf("has more documents than the limit of %d, the rest is not read: split it", maxDocuments)})
	}
	for i, doc := range docs {
		at := place{source: source}
		if len(docs) > 1 {
			at.parts = []string{"document " + strconv.Itoa(i+1)}
		}
		raw, reason := doc.toJSON()
		if reason != "" {
			p.refuse(model.ID{}, api.Problem{Source: at.String(), Reason: reason})
			continue
		}
		if raw != nil {
			p.manifest(raw, at, envelope{})
		}
	}
}

// place is where an object stands in a source.
type place struct {
	source string
	parts  []string
}

// String returns for example "shop.yaml (document 2, item 5)".
func (p place) String() string {
	if len(p.parts) == 0 {
		return p.source
	}
	return p.source + " (" + strings.Join(p.parts, ", ") + ")"
}

func (p place) item(i int) place {
	return place{source: p.source, parts: append(slices.Clip(p.parts), "item "+strconv.Itoa(i+1))}
}

var yamlLine = regexp.MustCompile(`line (\d+)`)

// toJSON returns the document as JSON, nil when it is null, or why it cannot be read.
func (doc document) toJSON() (raw []byte, reason string) {
	if doc.json {
		return doc.text, ""
	}
	raw, err := YAMLToJSON(doc.text)
	if err, ok := errors.AsType[*yamlTooLarge](err); ok {
		return nil, err.Error()
	}
	if err == nil {
		if string(raw) == "null" {
			return nil, ""
		}
		return raw, ""
	}
	return nil, "is not valid " + doc.language() + ": " + doc.yamlError(err)
}

func (doc document) language() string {
	if doc.text[0] == '{' {
		return "JSON or YAML"
	}
	return "YAML"
}

// yamlError returns the first line of an error with the lines counted from the
// beginning of the file.
func (doc document) yamlError(err error) string {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	text = strings.TrimPrefix(text, "unmarshal errors:\n  ")
	text, _, _ = strings.Cut(text, "\n")
	if !yamlLine.MatchString(text) {
		return fmt.Sprintf("%s, in the document from line %d on", text, doc.line)
	}
	return yamlLine.ReplaceAllStringFunc(text, func(s string) string {
		n, _ := strconv.Atoi(s[len("line "):])
		return fmt.Sprintf("line %d", n+doc.line-1)
	})
}

// envelope is what says how to read an object.
type envelope struct{ version, kind string }

// manifest reads one object, or the objects of a list. Items of typed lists take
// what they do not say of themselves from inherited.
func (p *parser) manifest(raw []byte, at place, inherited envelope) {
	var top map[string]json.RawMessage
	if json.Unmarshal(raw, &top) != nil || top == nil {
		p.refuse(model.ID{}, api.Problem{Source: at.String(), Reason: errNotObject.Error()})
		return
	}
	env, err := readEnvelope(top, inherited)
	if err != nil {
		p.refuse(model.ID{}, err.problem(at.String(), ""))
		return
	}
	_, isList := listOf(env.kind)
	_, isRead := readKinds[env.kind]
	switch {
	case p.rest && (!isList || p.version(env) != nil):
		p.verbatim(raw, env, at)
	case foreign(env):
		p.skip(top, env)
	case isList:
		p.list(top["items"], env, at)
	case isRead:
		p.object(raw, env, at)
	case irrelevant(env.kind):
		p.skip(top, env)
	default:
		reason := quoted(env.kind) + " is not a kind of Kubernetes"
		if likely, ok := likelyKind(env.kind); ok {
			reason += ": did you mean " + likely + "?"
		}
		p.refuse(model.ID{}, api.Problem{Source: at.String(), Object: title(raw, env), Field: "kind", Reason: reason})
	}
}

// skip notes an object that is not read.
func (p *parser) skip(top map[string]json.RawMessage, env envelope) {
	var meta struct{ Name string }
	_ = json.Unmarshal(top["metadata"], &meta) // what cannot be read has no name
	p.skipped = append(p.skipped, reference(env.kind, env.version, meta.Name))
}

func readEnvelope(top map[string]json.RawMessage, inherited envelope) (envelope, *fieldError) {
	env := inherited
	for _, f := range []struct {
		name, example string
		into          *string
	}{{"apiVersion", "v1", &env.version}, {"kind", "Pod", &env.kind}} {
		raw, ok := top[f.name]
		if ok && json.Unmarshal(raw, f.into) != nil {
			return env, &fieldError{path: f.name, reason: "must be a string"}
		}
		if *f.into == "" {
			return env, &fieldError{path: f.name, reason: fmt.Sprintf("is missing: write for example %s: %s", f.name, f.example)}
		}
	}
	return env, nil
}

func (p *parser) list(raw json.RawMessage, env envelope, at place) {
	itemKind, _ := listOf(env.kind)
	inherited := envelope{}
	if itemKind != "" {
		inherited = envelope{version: env.version, kind: itemKind}
	}
	if err := p.version(env); err != nil {
		p.refuse(model.ID{}, err.problem(at.String(), env.kind))
		return
	}
	if len(at.parts) > maxListDeep {
		p.refuse(model.ID{}, api.Problem{Source: at.String(), Object: env.kind, Field: "items",
			Reason: fmt.Sprintf("are lists within lists, deeper than the limit of %d", maxListDeep)})
		return
	}
	if reason := p.items(raw, inherited, at); reason != "" {
		p.refuse(model.ID{}, api.Problem{Source: at.String(), Object: env.kind, Field: "items", Reason: reason})
	}
}

// items reads the items of a list one by one, because there may be very many
// small ones. It returns why not all of them were read.
func (p *parser) items(raw json.RawMessage, inherited envelope, at place) (reason string) {
	if raw == nil || string(raw) == "null" {
		return ""
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	if t, err := dec.Token(); err != nil || t != json.Delim('[') {
		return "must be a list"
	}
	for i := 0; dec.More(); i++ {
		if i == maxDocuments {
			return fmt.Sprintf("are more than the limit of %d, the rest is not read: split it", maxDocuments)
		}
		var item json.RawMessage
		if dec.Decode(&item) != nil {
			return "must be a list"
		}
		p.manifest(item, at.item(i), inherited)
	}
	return ""
}

// version says what is wrong with the version of a kind that is read, or of a list.
func (p *parser) version(env envelope) *fieldError {
	switch {
	case isLegacy(env) && p.legacy:
		return nil
	case isLegacy(env):
		return &fieldError{path: "apiVersion", reason: fmt.Sprintf("%s is a legacy version, whose meaning depends on the namespace: %s", quoted(env.version), convertFirst)}
	}
	if want := versionOf(env.kind); env.version != want {
		return &fieldError{path: "apiVersion", reason: fmt.Sprintf("%s is not the version in which %s is read: write %s",
			quoted(env.version), article(env.kind), want)}
	}
	return nil
}
