package strict

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/sluice-net/sluice/api"
)

// Decoder decodes JSON trees into Kubernetes types, as an API server with strict field validation
// does. It compares names case-sensitively, rejects unknown fields and wrong types, and reports the
// path of the field. The standard decoder does none of these.
//
// The trees hold map[string]any, []any, json.Number, string, bool and nil.
type Decoder struct {
	lenient []string // top-level fields below which unknown fields are ignored
	path    []step
	fields  fieldCache
}

// fieldCache maps struct types to their fields by JSON name.
type fieldCache map[reflect.Type]structFields

type structFields struct {
	index map[string][]int
	names []string // sorted
}

// NewDecoder returns a Decoder, which caches the fields of types. Only one goroutine may use it.
func NewDecoder() *Decoder { return &Decoder{fields: fieldCache{}} }

// Decode fills a struct from a tree and returns the first error, in the order of the names. It
// ignores unknown fields below the lenient top-level fields.
func (d *Decoder) Decode(tree any, into any, lenient []string) *FieldError {
	d.path, d.lenient = d.path[:0], lenient
	return d.value(tree, reflect.ValueOf(into).Elem())
}

var intOrString = reflect.TypeFor[intstr.IntOrString]()

func (d *Decoder) value(v any, into reflect.Value) *FieldError {
	if v == nil {
		return nil // null is the zero value
	}
	if u, ok := reflect.TypeAssert[json.Unmarshaler](into.Addr()); ok {
		return d.custom(v, into, u)
	}
	switch into.Kind() {
	case reflect.Pointer:
		p := reflect.New(into.Type().Elem())
		into.Set(p)
		return d.value(v, p.Elem())
	case reflect.Struct:
		return d.object(v, into)
	case reflect.Map:
		return d.mapping(v, into)
	case reflect.Slice:
		return d.list(v, into)
	default:
		return d.scalar(v, into)
	}
}

// custom decodes into types with a decoder of their own, such as times and quantities.
func (d *Decoder) custom(v any, into reflect.Value, u json.Unmarshaler) *FieldError {
	if into.Type() == intOrString {
		return d.port(v, into)
	}
	raw, err := json.Marshal(v)
	if err == nil {
		err = u.UnmarshalJSON(raw)
	}
	if err != nil {
		return d.errorf("%s is not a %s", found(v), strings.ToLower(into.Type().Name()))
	}
	return nil
}

// port decodes a number or a name.
func (d *Decoder) port(v any, into reflect.Value) *FieldError {
	var out intstr.IntOrString
	switch v := v.(type) {
	case string:
		out = intstr.FromString(v)
	case json.Number:
		n, err := strconv.ParseInt(v.String(), 10, 32)
		if err != nil {
			return d.mismatch("a whole number of 32 bits", v)
		}
		out = intstr.FromInt32(int32(n))
	default:
		return d.mismatch("a number or a name", v)
	}
	into.Set(reflect.ValueOf(out))
	return nil
}

func (d *Decoder) object(v any, into reflect.Value) *FieldError {
	m, ok := v.(map[string]any)
	if !ok {
		return d.mismatch("an object", v)
	}
	fields := d.fieldsOf(into.Type())
	for _, name := range slices.Sorted(maps.Keys(m)) {
		index, known := fields.index[name]
		d.path = append(d.path, step{name: name})
		if !known {
			if err := d.unknown(name, fields.names); err != nil {
				return err
			}
		} else if err := d.value(m[name], into.FieldByIndex(index)); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
	}
	return d.demanded(m, into.Type())
}

// unknown rejects the field at the path, unless newer clusters may have more fields there. It also
// rejects a name that differs from a known one in case only.
func (d *Decoder) unknown(name string, names []string) *FieldError {
	sameButCase := func(known string) bool { return strings.EqualFold(known, name) }
	if slices.Contains(d.lenient, d.path[0].name) && !slices.ContainsFunc(names, sameButCase) {
		return nil
	}
	if likely, found := Nearest(name, names); found {
		return d.errorf("is not a known field: did you mean %s?", likely)
	}
	return d.errorf("is not a known field")
}

func (d *Decoder) mapping(v any, into reflect.Value) *FieldError {
	m, ok := v.(map[string]any)
	if !ok {
		return d.mismatch("an object", v)
	}
	t := into.Type()
	into.Set(reflect.MakeMapWithSize(t, len(m)))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		d.path = append(d.path, step{kind: keyStep, name: key})
		elem := reflect.New(t.Elem()).Elem()
		if err := d.value(m[key], elem); err != nil {
			return err
		}
		into.SetMapIndex(reflect.ValueOf(key).Convert(t.Key()), elem)
		d.path = d.path[:len(d.path)-1]
	}
	return nil
}

// list rejects null items: an API server reads them as empty objects, and an empty rule of a policy
// allows everything.
func (d *Decoder) list(v any, into reflect.Value) *FieldError {
	items, ok := v.([]any)
	if !ok {
		return d.mismatch("a list", v)
	}
	into.Set(reflect.MakeSlice(into.Type(), len(items), len(items)))
	for i, item := range items {
		d.path = append(d.path, step{kind: itemStep, index: i})
		if item == nil {
			return d.errorf("must not be null: write the item, or leave it out")
		}
		if err := d.value(item, into.Index(i)); err != nil {
			return err
		}
		d.path = d.path[:len(d.path)-1]
	}
	return nil
}

func (d *Decoder) scalar(v any, into reflect.Value) *FieldError {
	switch into.Kind() {
	case reflect.String:
		s, ok := v.(string)
		if !ok {
			return d.mismatch("a string", v)
		}
		into.SetString(s)
	case reflect.Bool:
		b, ok := v.(bool)
		if !ok {
			return d.mismatch("true or false", v)
		}
		into.SetBool(b)
	case reflect.Int, reflect.Int32, reflect.Int64:
		n, ok := v.(json.Number)
		if !ok {
			return d.mismatch("a whole number", v)
		}
		i, err := strconv.ParseInt(n.String(), 10, into.Type().Bits())
		if err != nil {
			return d.mismatch(fmt.Sprintf("a whole number of %d bits", into.Type().Bits()), v)
		}
		into.SetInt(i)
	default:
		return d.errorf("cannot be read")
	}
	return nil
}

// fieldsOf lists the JSON names of a struct, including those of its inlined structs.
func (d *Decoder) fieldsOf(t reflect.Type) structFields {
	if f, ok := d.fields[t]; ok {
		return f
	}
	f := structFields{index: map[string][]int{}}
	for i := range t.NumField() {
		sf := t.Field(i)
		name, _, _ := strings.Cut(sf.Tag.Get("json"), ",")
		if name != "" && name != "-" {
			f.index[name] = sf.Index
		} else if name == "" && sf.Anonymous {
			for inlined, index := range d.fieldsOf(sf.Type).index {
				f.index[inlined] = append([]int{i}, index...)
			}
		}
	}
	f.names = slices.Sorted(maps.Keys(f.index))
	d.fields[t] = f
	return f
}

func (d *Decoder) mismatch(want string, v any) *FieldError {
	hint := ""
	switch v.(type) {
	case json.Number, bool:
		if want == "a string" {
			hint = ": put it in quotes"
		}
	}
	return d.errorf("must be %s, not %s%s", want, found(v), hint)
}

func (d *Decoder) errorf(format string, args ...any) *FieldError {
	return &FieldError{Path: pathString(d.path), Reason: fmt.Sprintf(format, args...)}
}

// FieldError is an error in one field of an object.
type FieldError struct{ Path, Reason string }

// Error returns "path: reason".
func (e *FieldError) Error() string { return e.Path + ": " + e.Reason }

// Problem returns the error as a problem of an object.
func (e *FieldError) Problem(source, object string) api.Problem {
	return api.Problem{Source: source, Object: object, Field: e.Path, Reason: e.Reason}
}
