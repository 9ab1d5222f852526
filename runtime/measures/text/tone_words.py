"""The words and openings by which tone is told: greetings, closings, persons, polite and casual words, contractions, particles.

In:  nothing.
Out: sets of words and patterns, in lower case and simplified Chinese (normal_form.fold).
They are written for English and Chinese; German, Indonesian, Spanish, French and Russian have the persons, greetings and commonest polite words.
"""

from __future__ import annotations

import re

FIRST_PERSON = frozenset(
    "i me my mine myself we us our ours im ive id ill ich mir mich mein meine meinen wir uns unser unsere saya aku kami kita yo mi nosotros nuestro "
    "nuestra je moi mon ma mes nous notre nos я мне меня мой моя мы нас нам наш наша 我 咱 俺".split()
)
SECOND_PERSON = frozenset(
    "you your yours yourself youre youll youve u ya ihr ihnen ihre ihren du dir dich dein deine anda kamu kalian usted ustedes tu tú te vous votre "
    "vos toi вы вас вам ваш ваша ты тебя тебе твой 你 您".split()
)
FORMAL = frozenset(
    "please kindly would could may shall sincerely regards regarding sir madam however therefore thus furthermore moreover hence appreciate "
    "apologies apologise apologize assist assistance inquire enquiry provide require ensure bitte gerne silakan silahkan mohon tolong harap favor "
    "veuillez merci cordialement пожалуйста уважаемый 您 请 敬 尊 谨 烦 恳 祝".split()
)
CASUAL = frozenset(
    "hey hi yeah yep yup nope nah ok okay lol lmao omg btw haha hahaha hehe cool awesome wow gonna wanna gotta kinda sorta dunno thx pls plz tho cuz "
    "dude guys stuff super totally yay oops hmm uh um hallo tja nee jo moin sih dong deh nih lho kok gak nggak banget jaja vale ouais ouf bof ага ну "
    "блин 哈 嘻 嗨 嘿 嗯 啦 咯 呗 嘛 哎 呵 亲 哇 啥 咋".split()
)
PARTICLES = frozenset("吧呢啊哦呀啦嘛哈嗯喔噢哟咯呗诶欸哇吗")
"""counted among Han characters only"""
_CONTRACTED = r"(?:n't|'re|'ve|'ll|'m)\b|\b(?:it|that|what|there|here|who|where|how|he|she|let)'s\b|\b(?:i|you|he|she|we|they|it)'d\b"
CONTRACTION = re.compile(
    rf"{_CONTRACTED}|\b(?:dont|doesnt|didnt|cant|wont|isnt|arent|wasnt|im|ive|youre|thats|whats|lets|gonna|wanna|gotta|kinda|dunno)\b"
)
GREETING = re.compile(
    r"[\s\"']*(?:(?:hello|hi+|hey+|dear|greetings|welcome|good (?:morning|afternoon|evening|day)|hallo|guten (?:tag|morgen|abend)|liebe[rs]?|"
    r"sehr geehrte|halo|hai|selamat|hola|buen[oa]s|estimad[oa]|bonjour|bonsoir|salut|cher|chère|здравствуйте|привет|добрый)\b|"
    r"您好|你好|哈[喽啰罗]|嗨|亲[,!~ ]|亲爱的|早上好|下午好|晚上好|大家好|欢迎|尊敬的|こんにちは|안녕)"
)
CLOSING = re.compile(
    r"(?:\b(?:regards|sincerely|cheers|bye|goodbye|thanks|thank you(?: (?:very|so) much)?|see you(?: soon| there| then)?|take care|"
    r"have a (?:nice|great|good|lovely) \w+|best wishes|xo+|grüssen?|tschüss|vielen dank|danke(?: schön)?|terima kasih(?: banyak)?|makasih|"
    r"sampai jumpa|gracias|saludos|merci|cordialement|à bientôt|спасибо|до свидания)"
    r"|谢谢您?|感谢您的\w{2,6}|再见|拜拜|祝[您你]\w{2,8}|敬上|此致)[\W_]*\Z"
)
