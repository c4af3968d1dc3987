package config

import (
	"fmt"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"
)

// secrets are the settings whose values are never shown.
var secrets = []string{"etcd-password", "ui-token-file"}

// hidden replaces the value of a secret.
const hidden = "(hidden)"

// Shown returns the settings in force by their names, as people may see them: without passwords.
func (c Config) Shown() map[string]any {
	out := map[string]any{}
	show(reflect.ValueOf(c), out)
	for _, name := range secrets {
		if out[name] != "" && out[name] != nil {
			out[name] = hidden
		}
	}
	return out
}

// show adds the fields of a section.
func show(section reflect.Value, out map[string]any) {
	for i := range section.NumField() {
		name, squash := strings.CutSuffix(section.Type().Field(i).Tag.Get("koanf"), ",squash")
		field := section.Field(i)
		switch {
		case squash:
			show(field, out)
		case name != "":
			out[name] = value(field.Interface())
		}
	}
}

// value returns a value as it is written in a file of settings.
func value(v any) any {
	switch v := v.(type) {
	case time.Duration:
		return v.String()
	case string:
		return withoutUser(v)
	case []string:
		v = slices.Clone(v)
		for i, s := range v {
			v[i] = withoutUser(s)
		}
		return v
	case bool, int, uint32:
		return v
	}
	return fmt.Sprint(v)
}

// withoutUser hides the user and the password of a URL.
func withoutUser(text string) string {
	if !strings.Contains(text, "@") {
		return text
	}
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		if strings.Contains(text, "://") {
			return hidden
		}
		return text
	}
	u.User = nil
	return u.String()
}
