package client

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadEvents(t *testing.T) {
	var heard []string
	err := readEvents(strings.NewReader(":\n\nid: 1\ndata: a\ndata:b\n\nevent: x\n\nid: 2\n\ndata: cut"), func() {}, func(id string, data []byte) error {
		heard = append(heard, id+"="+string(data))
		return nil
	})
	require.ErrorContains(t, err, "the bridge has ended the stream")
	require.Equal(t, []string{"1=a\nb", "2="}, heard)
}
