package yang

import (
	"regexp"
	"sync"
	"testing"

	goyang "github.com/openconfig/goyang/pkg/yang"
	"github.com/stretchr/testify/require"
)

// typedefs holds the patterns of the RFC 6991 typedefs, including inherited ones.
func typedefs(t testing.TB) map[string][]*regexp.Regexp {
	t.Helper()
	out, err := loadTypedefs()
	require.NoError(t, err)
	return out
}

var loadTypedefs = sync.OnceValues(func() (map[string][]*regexp.Regexp, error) {
	sources, err := readSources()
	if err != nil {
		return nil, err
	}
	parsed := goyang.NewModules()
	for _, name := range []string{"ietf-inet-types.yang", "ietf-yang-types.yang"} {
		if err := parsed.Parse(sources[name], name); err != nil {
			return nil, err
		}
	}
	parsed.Process()
	out := map[string][]*regexp.Regexp{}
	for _, module := range []string{"ietf-inet-types", "ietf-yang-types"} {
		for _, typedef := range parsed.Modules[module].Typedef {
			for _, pattern := range typedef.YangType.Pattern {
				compiled, err := compilePattern(pattern)
				if err != nil {
					return nil, err
				}
				out[typedef.Name] = append(out[typedef.Name], compiled)
			}
		}
	}
	return out, nil
})

// requireWithinPatterns fails if the Go code accepts a value that a pattern does not match, or
// if its canonical form is not stable.
func requireWithinPatterns(t *testing.T, name, value string) {
	t.Helper()
	known := knownTypes[name]
	canonical, ok := known.canonical(value)
	if !ok {
		return
	}
	for _, pattern := range typedefs(t)[name] {
		require.Regexp(t, pattern, value, name)
		require.Regexp(t, pattern, canonical, name)
	}
	again, ok := known.canonical(canonical)
	require.True(t, ok, "%s %q", name, canonical)
	require.Equal(t, canonical, again, name)
}
