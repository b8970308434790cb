package kube

import (
	"context"
	"errors"
	"io"
	"net/http"

	"golang.org/x/net/http2"
)

// maxPage is the maximum size of a page of a list in bytes. The API server limits only the
// number of objects, and an object of a tenant can have more than a megabyte. A decoded
// EndpointSlice is twelve times as large.
const maxPage = 4 << 20

// errLargePage is the error for a page larger than maxPage.
var errLargePage = errors.New("the page of the list is too large")

// isLargePage reports whether a list failed with errLargePage.
func isLargePage(err error) bool {
	var broken http2.StreamError
	return errors.As(err, &broken) && errors.Is(broken.Cause, errLargePage)
}

type pageKey struct{}

// bounded limits the response of requests with this context: reading more than maxPage bytes
// fails with errLargePage.
func bounded(ctx context.Context) context.Context { return context.WithValue(ctx, pageKey{}, true) }

// boundBody limits the body of a response if its request's context is bounded.
func boundBody(ctx context.Context, response *http.Response) {
	if ctx.Value(pageKey{}) != nil {
		response.Body = &boundedBody{response.Body, maxPage}
	}
}

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return n, http2.StreamError{Code: http2.ErrCodeCancel, Cause: errLargePage} // client-go logs any other as an error
	}
	return n, err
}
