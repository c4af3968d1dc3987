// Package strict decodes JSON and YAML into Go types as strictly as an API server with strict field
// validation does. It rejects duplicate keys, unknown fields and wrong types, and compares field
// names case-sensitively. Its errors name the field.
package strict
