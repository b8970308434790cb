*** Settings ***
Documentation       Basic authentication, and the rights of roles.
Resource            ../resources/entries.resource

Suite Setup         Write A Pod
Suite Teardown      Remove All Entries

Test Tags           access


*** Variables ***
${OLD_ENTRY}        ${DRAFT02.data}/${POD.container}/pods/${POD_UID}
${NEW_ENTRY}        ${RFC8040.data}/${POD.container}/pods=${POD_UID}


*** Test Cases ***
A Client Without Credentials Is Refused
    [Tags]    odl
    FOR    ${entry}    IN    ${OLD_ENTRY}    ${NEW_ENTRY}
        Request    GET    ${entry}    session=nobody    expected=401
        Request    DELETE    ${entry}    session=nobody    expected=401
    END
    The Pod Should Be There

A Refusal Names The Authentication Scheme
    ${answer}=    Request    GET    ${OLD_ENTRY}    session=nobody    expected=401
    Should Start With    ${answer.headers}[WWW-Authenticate]    Basic    ignore_case=True
    Error Should Be    ${answer}    access-denied
    ${answer}=    Request    GET    ${NEW_ENTRY}    session=nobody    expected=401
    Error Should Be    ${answer}    access-denied    ${RFC8040}

A Wrong Password Is Refused
    [Tags]    odl
    Open Session    guess    ${USER}    not-${PASSWORD}
    Request    GET    ${OLD_ENTRY}    session=guess    expected=401
    Request    DELETE    ${OLD_ENTRY}    session=guess    expected=401
    The Pod Should Be There

An Unknown User Is Refused
    [Tags]    odl
    Open Session    stranger    stranger    ${PASSWORD}
    Request    GET    ${OLD_ENTRY}    session=stranger    expected=401

A Reader Reads
    FOR    ${entry}    IN    ${OLD_ENTRY}    ${NEW_ENTRY}
        Request    GET    ${entry}    session=reader    expected=200
        Request    HEAD    ${entry}    session=reader    expected=200
        Request    OPTIONS    ${entry}    session=reader    expected=200
    END

A Reader Cannot Write
    ${body}=    Body    pod.json
    ${second}=    Body    second-pod.json
    FOR    ${dialect}    ${entry}    IN    ${DRAFT02}    ${OLD_ENTRY}    ${RFC8040}    ${NEW_ENTRY}
        VAR    ${container}    ${dialect.data}/${POD.container}
        FOR    ${method}    ${path}    ${sent}    IN
        ...    POST    ${container}    ${second}
        ...    PUT    ${entry}    ${body}
        ...    DELETE    ${entry}    ${NONE}
        ...    DELETE    ${container}    ${NONE}
            ${answer}=    Request    ${method}    ${path}    ${sent}
            ...    type=${dialect.json}    session=reader    expected=403
            Error Should Be    ${answer}    access-denied    ${dialect}
        END
    END
    The Pod Should Be There

A Client That Guesses Passwords Must Wait
    [Documentation]    After several wrong passwords the right one is refused too. Other users are served.
    Guess Until Refused
    Open Session    guest    ${GUEST}    ${GUEST_PASSWORD}
    ${answer}=    Request    GET    ${OLD_ENTRY}    session=guest    expected=429
    Should Be True    int($answer.headers['Retry-After']) > 0
    The Pod Should Be There


*** Keywords ***
Write A Pod
    Begin Without Entries
    ${body}=    Body    pod.json
    Request    PUT    ${OLD_ENTRY}    ${body}    expected=201

The Pod Should Be There
    Request    GET    ${OLD_ENTRY}    expected=200

Guess Until Refused
    [Documentation]    The controller counts a wrong password once, so each guess is different. The keyword ends when
    ...    the client must wait for more than a second.
    FOR    ${guess}    IN RANGE    20
        Open Session    guess    ${GUEST}    guess-${guess}
        ${answer}=    Request    GET    ${OLD_ENTRY}    session=guess
        IF    ${answer.status_code} == 429
            IF    int($answer.headers['Retry-After']) > 1    RETURN
            Sleep    1s
        ELSE
            Status Should Be    401    ${answer}
        END
    END
    Fail    the controller still answers after 20 wrong passwords
