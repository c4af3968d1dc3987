package decode

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"

	"github.com/sluice-net/sluice/plugins/ksr/kinds"
	"github.com/sluice-net/sluice/plugins/ksr/legacy"
	"github.com/sluice-net/sluice/plugins/ksr/strict"
)

// Limits against hostile input. They are far above what Kubernetes itself stores.
const (
	MaxStream    = 1 << 30   // bytes of one file
	maxObject    = 16 << 20  // bytes of one object, as JSON without white space
	maxDocuments = 1_000_000 // documents of one file, and items of one list
	maxListDeep  = 8         // lists within lists
	maxRefusals  = 1_000     // of one file, that are reported individually
)

// defaultNamespace is the namespace of namespaced manifests without a namespace.
const defaultNamespace = metav1.NamespaceDefault

// Reading selects what is read in addition to the current kinds. The zero value reads nothing else.
type Reading struct {
	Legacy bool // policies of legacy.Version
	// Rest keeps objects of all other kinds, as a *Verbatim, and the trees of decoded objects.
	Rest bool
}

// Parsed is the content of one stream.
type Parsed struct {
	Objects  []kinds.Object
	Trees    []map[string]any // of the objects, if Rest is set
	Refusals []Refusal        // one per invalid document or object
	Skipped  []string         // objects of irrelevant kinds, as kinds.Reference names them
	// Controllers are those among them that find pods by labels.
	Controllers []Controller
}

// Controller is what is read of a Deployment and its like.
type Controller struct {
	Namespace   string
	MatchLabels map[string]string
}

// Refusal is a rejected document or object. The ID is zero if the intended object is unknown.
type Refusal struct {
	ID      model.ID
	Problem api.Problem
}

// parser reads one stream.
type parser struct {
	Parsed
	Reading
	decoder *strict.Decoder
	more    int // number of refusals that are not listed
}

// Read reads the objects of a stream of YAML documents or JSON values, which may also be lists such
// as kubectl writes. It skips other kinds that Kubernetes serves. Each invalid document or object
// is one Refusal; the result does not contain rejected objects. source names the stream in
// messages.
func (rd Reading) Read(r io.Reader, source string) Parsed {
	stream, err := Bounded(r)
	if err != nil {
		return Parsed{Refusals: []Refusal{{Problem: Unreadable(source, err)}}}
	}
	return rd.Bytes(stream, source)
}

// Bytes is Read for a stream in memory.
func (rd Reading) Bytes(stream []byte, source string) Parsed {
	if len(stream) > MaxStream {
		return Parsed{Refusals: []Refusal{{Problem: Unreadable(source, errTooLarge)}}}
	}
	p := parser{Reading: rd, decoder: strict.NewDecoder()}
	p.stream(stream, source)
	if p.more > 0 {
		// Without an ID, because the intended objects are unknown.
		p.Refusals = append(p.Refusals, Refusal{Problem: api.Problem{Source: source,
			Reason: fmt.Sprintf("has %d more documents or objects that cannot be used", p.more)}})
	}
	return p.Parsed
}

func (p *parser) refuse(id model.ID, problem api.Problem) {
	if len(p.Refusals) == maxRefusals {
		p.more++
		return
	}
	p.Refusals = append(p.Refusals, Refusal{ID: id, Problem: problem})
}

func (p *parser) stream(stream []byte, source string) {
	docs := strict.Documents(stream, maxDocuments)
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
		raw, reason := doc.JSON()
		if reason != "" {
			p.refuse(model.ID{}, api.Problem{Source: at.String(), Reason: reason})
			continue
		}
		if raw != nil {
			p.manifest(raw, at, envelope{})
		}
	}
}

// place is the position of an object in a source.
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

// envelope determines how an object is read.
type envelope struct{ version, kind string }

// manifest reads one object, or the objects of a list. Items of typed lists inherit the fields of
// the envelope that they lack.
func (p *parser) manifest(raw []byte, at place, inherited envelope) {
	var top map[string]json.RawMessage
	if json.Unmarshal(raw, &top) != nil || top == nil {
		p.refuse(model.ID{}, api.Problem{Source: at.String(), Reason: strict.ErrNotObject.Error()})
		return
	}
	env, err := readEnvelope(top, inherited)
	if err != nil {
		p.refuse(model.ID{}, err.Problem(at.String(), ""))
		return
	}
	_, isList := listOf(env.kind)
	_, isRead := kinds.ByName[env.kind]
	switch {
	case p.Rest && (!isList || p.version(env) != nil):
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
		reason := model.Quoted(env.kind) + " is not a kind of Kubernetes"
		if likely, ok := likelyKind(env.kind); ok {
			reason += ": did you mean " + likely + "?"
		}
		p.refuse(model.ID{}, api.Problem{Source: at.String(), Object: title(raw, env), Field: "kind", Reason: reason})
	}
}

// skip records an object that is not read.
func (p *parser) skip(top map[string]json.RawMessage, env envelope) {
	var meta struct{ Name, Namespace string }
	_ = json.Unmarshal(top["metadata"], &meta) // an unreadable object has no name
	var spec struct {
		Selector struct{ MatchLabels map[string]string }
	}
	if json.Unmarshal(top["spec"], &spec) == nil && len(spec.Selector.MatchLabels) > 0 {
		p.Controllers = append(p.Controllers, Controller{cmp.Or(meta.Namespace, defaultNamespace), spec.Selector.MatchLabels})
	}
	p.Skipped = append(p.Skipped, kinds.ReferenceTo(env.kind, env.version, meta.Name))
}

func readEnvelope(top map[string]json.RawMessage, inherited envelope) (envelope, *strict.FieldError) {
	env := inherited
	for _, f := range []struct {
		name, example string
		into          *string
	}{{"apiVersion", "v1", &env.version}, {"kind", "Pod", &env.kind}} {
		raw, ok := top[f.name]
		if ok && json.Unmarshal(raw, f.into) != nil {
			return env, &strict.FieldError{Path: f.name, Reason: "must be a string"}
		}
		if *f.into == "" {
			return env, &strict.FieldError{Path: f.name, Reason: fmt.Sprintf("is missing: write for example %s: %s", f.name, f.example)}
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
		p.refuse(model.ID{}, err.Problem(at.String(), env.kind))
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

// items reads the items of a list one by one, because there may be very many small ones. It returns
// the reason if it did not read all.
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

// version returns an error if the version of a supported kind, or of a list, is wrong.
func (p *parser) version(env envelope) *strict.FieldError {
	switch {
	case legacy.Is(env.version, env.kind) && p.Legacy:
		return nil
	case legacy.Is(env.version, env.kind):
		return &strict.FieldError{Path: "apiVersion", Reason: legacy.Refusal()}
	}
	if want := kindOf(env.kind); !want.Reads(env.version) {
		return &strict.FieldError{Path: "apiVersion", Reason: fmt.Sprintf("%s is not the version in which %s is read: write %s",
			model.Quoted(env.version), kinds.Article(env.kind), want.Version)}
	}
	return nil
}

// Unreadable returns the problem of a source that cannot be read.
func Unreadable(path string, err error) api.Problem {
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err // the path is already the source
	}
	return api.Problem{Source: path, Reason: "cannot be read: " + err.Error()}
}
